"""The catalog of the bot's messages. Each is a field, so that a language cannot lack one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """The bot's messages in one language.

    Values have {named} placeholders, the same in every language. Messages are Markdown, except:

    - `help_*`: one plain line of at most 256 characters (Telegram's limit for a command's description);
      `help_NAME` describes the command /NAME.
    - `button_*`: at most 75 characters (Slack's limit for a button's label).
    - `press_*`: at most 200 characters (Telegram's limit for the answer to a pressed button).
    - `why_*`: part of a line; `why_REASON` belongs to the reason code REASON.
    - `word_*`, `upload_*`: part of a sentence.
    """

    language: str
    """The language's own name."""

    # /help and the lists of commands that platforms show.
    commands_head: str
    help_bootstrap: str
    help_new: str
    help_status: str
    help_models: str
    help_model: str
    help_agent: str
    help_skills: str
    help_memory: str
    help_forget: str
    help_retry: str
    help_undo: str
    help_export: str
    help_stop: str
    help_language: str
    help_why: str
    help_help: str
    command_failed: str

    # Answers of commands.
    new_done: str
    status_thread: str
    status_none: str
    stop_done: str
    stop_nothing: str
    bootstrap_request: str
    """What /bootstrap without an argument asks the agent."""
    models_head: str
    models_none: str
    models_failed: str
    agents_failed: str
    skills_head: str
    skills_none: str
    skills_failed: str
    memory_count: str
    memory_failed: str
    forget_ask: str
    forget_done: str
    forget_failed: str
    word_you: str
    word_this_chat: str

    # /model and /agent.
    word_model: str
    word_agent: str
    word_default: str
    word_the_default: str
    word_chat: str
    word_conversation: str
    choice_unknown: str
    choice_now: str
    choice_done: str
    choice_head: str
    choice_none: str
    choice_hint: str

    # /language.
    language_now: str
    language_auto: str
    language_unknown: str
    language_done: str
    language_done_auto: str

    # /undo, /retry and /export.
    exchange_busy: str
    undo_done: str
    undo_nothing: str
    retry_nothing: str
    exchange_refused: str
    exchange_unreachable: str
    export_nothing: str
    export_unreachable: str
    transcript_title: str
    transcript_left_out: str
    word_person: str
    word_people: str
    word_files: str
    word_used: str

    # /why.
    why_admins_only: str
    why_here: str
    why_channel: str
    why_nothing: str
    why_line: str
    why_reason: str
    why_duplicate: str
    why_not_addressed: str
    why_not_allowed: str
    why_external: str
    why_pairing: str
    why_group_pairing: str
    why_disabled: str
    why_from_bot: str
    why_empty: str
    why_queue_full: str
    why_rate_limited: str
    why_unsupported: str
    why_unchanged: str
    why_too_late: str

    # Messages that are not accepted.
    queue_full: str
    rate_limited: str
    pairing_code: str
    group_pairing_code: str
    not_allowed: str
    external_denied: str

    # While a turn runs, and buttons.
    working: str
    progress_subagent: str
    button_stop: str
    button_retry: str
    button_approve: str
    button_deny: str
    button_rerun: str
    press_inactive: str
    press_not_yours: str
    press_not_allowed: str
    press_finished: str
    press_stopping: str
    press_answered: str
    press_newer: str
    press_full: str
    mark_retry: str
    """Follows a failed answer that is tried again."""
    mark_approved: str
    mark_denied: str

    # Approvals.
    approval_ask: str
    approval_hint: str
    approval_free: str
    approval_waits: str
    press_again: str
    """The press could not be stored."""

    # Greetings, and a menu click without a chat.
    hello_private: str
    hello_group: str
    menu_unplaced: str

    # Messages that were edited after they were answered.
    rerun_offer: str
    rerun_offer_later: str
    """If newer messages are taken back as well."""

    # Instead of an answer.
    stopped: str
    interrupted: str
    """A newer message ended the turn."""
    no_answer: str
    failed: str
    failed_auth: str
    failed_rate_limit: str
    failed_connection: str
    failed_timeout: str
    failed_server: str
    failed_steps: str
    failed_agent: str
    failed_no_agent: str
    agent_name_invalid: str
    agent_unreachable: str
    thread_busy: str
    interrupted_too_often: str
    answer_refused: str
    """The platform refused the answer."""

    # Files. `upload_*` also go to the agent, which tells the person.
    artifact_gone: str
    artifact_too_large: str
    artifact_empty: str
    artifact_refused: str
    code_in_file: str
    """Replaces code that is too long for a message."""
    upload_attached: str
    upload_failed: str
    upload_failed_because: str
    upload_too_many: str
    upload_too_large: str
    upload_too_slow: str
    message_cut: str
    edited_note: str
    """Tells the agent that a message was edited while it worked on it."""

    # Slack's agent status and suggested prompts.
    presence_working: str
    """Follows the bot's name; at most 50 characters."""
    prompts_title: str
    prompt_abilities: str
    prompt_document: str
    prompt_search: str

    def help(self, command: str) -> str:
        """Return a command's description, by its name."""
        return str(getattr(self, f"help_{command}"))

    def why(self, reason: str) -> str:
        """Return what a reason code means, by its value."""
        return str(getattr(self, f"why_{reason}"))
