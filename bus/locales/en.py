"""The bot's messages: names and English texts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """The bot's messages in one language. The defaults are English; other languages set every field.

    Values have {named} placeholders, the same in every language. Messages are Markdown, except:

    - `help_*`: one plain line of at most 256 characters (Telegram's limit for a command's description);
      `help_NAME` describes the command /NAME.
    - `button_*`: at most 75 characters (Slack's limit for a button's label).
    - `press_*`: at most 200 characters (Telegram's limit for the answer to a pressed button).
    - `why_*`: part of a line; `why_REASON` belongs to the reason code REASON.
    - `word_*`, `upload_*`, `speech_*`: part of a sentence.
    """

    language: str = "English"
    """The language's own name."""

    # /help and the lists of commands that platforms show.
    commands_head: str = "Available commands:"
    help_bootstrap: str = "Start a bootstrap session (enables agent setup)"
    help_new: str = "Start a new conversation"
    help_status: str = "Show current thread info"
    help_models: str = "List available models"
    help_model: str = "Show or choose this conversation's model"
    help_agent: str = "Show or choose this conversation's agent"
    help_skills: str = "List enabled skills"
    help_memory: str = "List what I remember here"
    help_forget: str = "Delete a fact, or all that I remember here"
    help_usage: str = "Show what you and this chat used"
    help_schedule: str = "List this chat's schedules"
    help_retry: str = "Answer the last message again"
    help_undo: str = "Take back the last message and its answer"
    help_export: str = "Get this conversation as a file"
    help_stop: str = "Stop the running answer"
    help_language: str = "Show or choose the language I speak"
    help_timezone: str = "Show or choose your time zone"
    help_why: str = (
        "Show what schedules and webhooks sent, and to admins why messages were not answered"
    )
    help_help: str = "Show this help"
    command_failed: str = "⚠️ Something went wrong, and the command failed. Please try again."

    # Answers of commands.
    new_done: str = "New conversation started."
    status_thread: str = "Active thread: {thread_id}"
    status_none: str = "No active conversation."
    status_taken_over: str = (
        "👤 A person has taken over here. I will not answer until they hand the conversation back."
    )
    stop_done: str = "Stopped."
    stop_nothing: str = "Nothing is running."
    bootstrap_request: str = "Initialize workspace"
    """The request to the agent when /bootstrap has no argument."""
    models_head: str = "Available models:"
    models_none: str = "No models configured."
    models_failed: str = "Failed to fetch models information."
    agents_failed: str = "Failed to fetch agents information."
    skills_head: str = "Enabled skills:"
    skills_none: str = "No skills enabled."
    skills_failed: str = "Failed to fetch skills information."
    memory_head: str = "What I remember about {whose} ({count}):"
    memory_none: str = "I remember nothing about {whose} yet."
    memory_by_operator: str = "entered by an administrator"
    memory_more: str = "{count} more: send /memory {page}."
    memory_hint: str = (
        "To delete one of them, send /forget and its number. To correct one, tell me what is right."
    )
    memory_usage: str = "Send /memory to see the list, or /memory with the number of a page."
    memory_failed: str = "Failed to fetch memory information."
    forget_ask: str = (
        "Facts that I remember about {whose}: {count}. /memory lists them, and /forget with a number deletes one. "
        "Send /forget {word} to delete everything I remember about {whose}."
    )
    forget_done: str = "I deleted everything I remembered about {whose}."
    forget_fact_done: str = "Forgotten: **{number}** – {content}"
    forget_unknown: str = "There is no fact {number} now. Send /memory to see the list."
    forget_not_yours: str = "Only {name}, who said fact {number}, or an admin can delete it."
    forget_not_admin: str = (
        "In a group, only an admin can delete everything. "
        "Send /forget and a number from /memory to delete a fact that you said."
    )
    forget_failed: str = "Failed to delete memory."
    usage_head: str = "Usage in UTC days and months:"
    usage_line: str = "• {whose}: {today} today, {month} this month"
    usage_origins: str = "• Of this, by schedules and webhooks: {month} this month"
    usage_amount: str = "{tokens} tokens"
    usage_amount_cost: str = "{tokens} tokens (${cost})"
    usage_you: str = "You"
    usage_this_chat: str = "This chat"
    usage_failed: str = "Failed to fetch usage information."
    word_you: str = "you"
    word_this_chat: str = "this chat"

    # /schedule and messages about schedules.
    schedule_head: str = "Schedules of this chat:"
    schedule_none: str = (
        "This chat has no schedules. Ask me for one in words: “Every Monday at 9, sum up the open "
        "issues.”"
    )
    schedule_next: str = "next {moment}"
    schedule_last: str = "last {moment}: {outcome}"
    schedule_once: str = "once"
    schedule_every: str = "every {period}"
    schedule_cron: str = "`{expression}` in {timezone}"
    schedule_is_paused: str = "paused"
    schedule_is_paused_owner: str = (
        "paused: {name} left this chat or is no longer allowed to use me"
    )
    schedule_is_paused_chat: str = "paused: I was no longer in this chat"
    schedule_is_paused_failures: str = "paused: it failed several times in a row"
    schedule_detail: str = "**{name}**\n{times} · {state}\nSet up by {owner}. It sends:\n\n{prompt}"
    schedule_hint: str = "Send /schedule with a number to see one, or with pause, resume, run or delete and a number."
    schedule_unknown: str = "There is no schedule {number}. Send /schedule to see the list."
    schedule_not_yours: str = "Only {name}, who set it up, or an admin can change it."
    schedule_paused: str = "Paused: {name}"
    schedule_resumed: str = "Resumed: {name}, next {moment}"
    schedule_started: str = "Started: {name}"
    schedule_not_started: str = "It could not be started: {name} ({reason})"
    schedule_deleted: str = "Deleted: {name}"
    schedule_over: str = "It is not due anymore: {name}"
    schedule_late: str = (
        "[This was due at {due} and comes late, because the service was down. "
        "Further times missed since: {count}.]"
    )
    """Tells the agent that a scheduled message is late."""
    schedule_paused_owner: str = (
        "⏸ The schedule “{name}” is paused: the person who set it up left this chat or is no longer "
        "allowed to use me. /schedule shows it."
    )
    schedule_paused_chat: str = (
        "⏸ Your schedule “{name}” is paused: I am not in its chat anymore. Add me again, and resume it "
        "there with /schedule."
    )
    schedule_paused_failures: str = (
        "⏸ The schedule “{name}” is paused: it failed {count} times in a row. /schedule shows it."
    )
    schedule_set_here: str = (
        "🗓 {owner} set up a schedule for this chat: “{name}”, next {moment}. /schedule shows it."
    )
    schedule_outcome_queued: str = "in progress"
    schedule_outcome_answered: str = "answered"
    schedule_outcome_silent: str = "nothing to say"
    schedule_outcome_unchanged: str = "unchanged"
    schedule_outcome_skipped: str = "skipped, because the previous one was not finished"
    schedule_outcome_missed: str = "missed, because the service was down"
    schedule_outcome_failed: str = "failed"
    button_schedule_pause: str = "Pause {number}"
    button_schedule_resume: str = "Resume {number}"
    button_schedule_run: str = "Run {number} now"
    button_schedule_delete: str = "Delete {number}"

    # /model and /agent.
    word_model: str = "model"
    word_agent: str = "agent"
    word_default: str = "default"
    word_the_default: str = "the default"
    word_chat: str = "chat"
    word_conversation: str = "conversation"
    choice_unknown: str = "There is no {kind} named “{wanted}”."
    choice_now: str = "Current {kind}: {name}"
    choice_done: str = "The {kind} of this {where} is now {name}."
    choice_head: str = "Available {kind}s:"
    choice_none: str = "There is no {kind} to choose."
    choice_hint: str = "Choose with /{command} NAME."

    # /language.
    language_now: str = "Current language: {name}\nChoose with /language {options}."
    language_auto: str = "{name} (automatic)"
    language_unknown: str = "I do not speak “{wanted}”.\nChoose with /language {options}."
    language_done: str = "From now on I speak English here."
    language_done_auto: str = "From now on I speak your language here."

    # /timezone.
    timezone_now: str = "Your time zone: {name}\nChoose with /timezone Europe/Berlin."
    timezone_guessed: str = "{name} (the server's, because I do not know yours)"
    timezone_unknown: str = "There is no time zone “{wanted}”. Use a name such as Europe/Berlin."
    timezone_done: str = "Your time zone is now {name}. Schedules that you have set up keep theirs."

    # /undo, /retry and /export.
    rewind_busy: str = "Something is running: send /stop first."
    undo_done: str = "Undone: “{words}”."
    undo_nothing: str = "Nothing to undo."
    retry_nothing: str = "Nothing to retry."
    rewind_refused: str = "The agent's server does not support taking messages back."
    rewind_unreachable: str = (
        "I could not reach the agent's server. Please try again in a few minutes."
    )
    export_nothing: str = "There is nothing to export yet."
    export_unreachable: str = (
        "I could not read the conversation. Please try again in a few minutes."
    )
    transcript_title: str = "Conversation"
    transcript_left_out: str = "Earlier messages are omitted."
    word_person: str = "You"
    word_people: str = "People"
    word_files: str = "Files"
    word_used: str = "Used"
    word_second: str = "1 second"
    word_seconds: str = "{count} seconds"
    word_minutes: str = "{count} minutes"
    word_hours: str = "{count} hours"

    # The causes of messages that no person sent: parts of a line in /why and in the console.
    cause_schedule: str = "schedule “{name}”, set up by {owner}"
    cause_due: str = "due {moment}"
    cause_hook: str = "webhook {name}"
    cause_event: str = "event {event}"
    cause_delivery: str = "delivery {delivery}"
    cause_send: str = "sent through the API, key {key}"

    # /why.
    why_caused: str = "Sent to this chat by schedules and webhooks, newest first:"
    why_admins_only: str = "Only admins can use this command."
    why_here: str = "Not accepted in this chat, newest first:"
    why_channel: str = "Not accepted on {channel} in the last 7 days:"
    why_nothing: str = "nothing"
    why_speech: str = "Recordings in this chat, newest first:"
    why_line: str = "{moment}, from {user}: {reason}"
    why_origin: str = "{origin} of {user}"
    why_reason: str = "{code} ({meaning})"
    why_duplicate: str = "the platform sent it twice"
    why_not_addressed: str = "in a group, and not addressed to the bot"
    why_declined: str = "without a mention, and the agent decided that it was not meant for it"
    why_not_allowed: str = "the sender is not among the allowed users"
    why_external: str = "the sender is from outside the organization"
    why_pairing: str = "the sender was asked to pair first"
    why_group_pairing: str = "the group is not approved yet"
    why_disabled: str = "this kind of chat is disabled"
    why_from_bot: str = "sent by a bot"
    why_empty: str = "it had no content"
    why_queue_full: str = "the conversation's queue was full"
    why_rate_limited: str = "the sender exceeded the rate limit"
    why_unsupported: str = "an unsupported kind of message"
    why_unchanged: str = "an edit or deletion without effect"
    why_too_late: str = "a button that is no longer active"
    why_taken_over: str = "a person has taken over the conversation"

    # Messages that are not accepted.
    queue_full: str = (
        "I still have {count} messages in this conversation to answer, so I did not accept "
        "this one. Please wait a moment and send it again."
    )
    rate_limited: str = (
        "You are sending messages too fast, so I did not accept this one. "
        "Please send it again in {wait}."
    )
    refused_more: str = (
        "I did not accept {count} more of your messages. Please send them again later."
    )
    command_near: str = "There is no such command. Did you mean {command}?"
    pairing_code: str = (
        "Hello! I do not know you yet. Your pairing code is {code}\n\n"
        "Ask the person who runs this bot to approve it within one hour "
        "(`parley pairing approve {code}`), then send your message again."
    )
    group_pairing_code: str = (
        "Hello! This group is not approved yet. Its pairing code is {code}\n\n"
        "Ask the person who runs this bot to approve it within one hour "
        "(`parley pairing approve {code}`), then send your message again."
    )
    pairing_approved: str = (
        "You have been approved: you can talk to me now. Please send your message again."
    )
    group_pairing_approved: str = (
        "This group has been approved: I answer here now. Please send your message again."
    )
    pairing_full: str = (
        "Sorry, too many people and groups are waiting for approval. "
        "Please send your message again in an hour."
    )
    not_answered_here: str = (
        "Sorry, I do not answer here. Please ask the person who runs this bot where I do."
    )
    not_allowed: str = (
        "Sorry, you do not have access to me yet. Please ask the person who runs this bot."
    )
    external_denied: str = (
        "Sorry, I only answer members of this organization. If you need access, "
        "please ask the person who runs this bot."
    )

    # While a turn runs, and buttons.
    working: str = "Working on it…"
    progress_subagent: str = "a subagent is working"
    button_stop: str = "Stop"
    button_retry: str = "Try again"
    button_approve: str = "Approve"
    button_deny: str = "Deny"
    button_rerun: str = "Run again with the edit"
    press_inactive: str = "This button is no longer active."
    press_not_yours: str = "Only the person who asked, or an admin, can do this."
    press_not_allowed: str = "You are not allowed to do this."
    press_finished: str = "This has already finished."
    press_stopping: str = "Stopping…"
    press_answered: str = "This has already been answered."
    press_newer: str = "There are newer messages here. Please send your message again instead."
    press_taken_over: str = "A person has taken over here, so this has no effect."
    press_full: str = "I have too much to answer right now. Please try again in a moment."
    mark_retry: str = "🔁 Trying again."
    """Follows a failed answer that the bot tries again."""
    mark_approved: str = "✓ Approved"
    mark_denied: str = "✗ Denied"

    # A person answers instead of the agent.
    taken_over: str = "👤 A person has taken over and will answer you here."
    handed_back: str = "🤖 I am back and will answer you again."
    taken_over_command: str = (
        "👤 A person has taken over here. This command does not work until they hand the "
        "conversation back."
    )

    # Approvals.
    approval_ask: str = "⚠️ I need your approval before I do this:"
    approval_cut: str = "⚠️ {count:,} more characters of this are not shown."
    """Follows a shortened tool call."""
    approval_hint: str = (
        "Reply “approve” or “deny”. Any other reply means “deny”, and I take it as the reason."
    )
    approval_hint_reply: str = (
        "Reply to this message, or mention me: “approve” or “deny”. "
        "Anything else you say to me means “deny”, and I take it as the reason."
    )
    """In a group, where other people also write."""
    approval_hint_mention: str = (
        "Mention me and say “approve” or “deny”. "
        "Anything else you say to me means “deny”, and I take it as the reason."
    )
    """In a group on a platform with threads instead of replies."""
    approval_undecided: str = "⏳ I am still waiting for your decision."
    """Comes before one of the hints if a person who may decide writes without a mention."""
    approval_free: str = "❓ I need your answer before I can continue."
    approval_waits: str = (
        "⏳ I am waiting for {name} to approve or deny a step. Only they or an admin can decide. "
        "After that, please send this again, or start over with /new."
    )
    question_waits: str = (
        "⏳ I am waiting for {name} to answer a question. Only they or an admin can answer it. "
        "After that, please send this again, or start over with /new."
    )
    press_again: str = "That did not work. Please press the button again in a moment."
    """Used if the press could not be stored."""

    # Greetings, and a menu click without a chat.
    hello_private: str = (
        "Hello! Tell me what you need: I answer questions, look things up, work with files and "
        "run code. /help lists my commands."
    )
    hello_group: str = (
        "Hello everyone! Mention me and tell me what you need; reply to my answer to continue. "
        "/help lists my commands."
    )
    menu_unplaced: str = "Please send me {command} as a message."

    # Messages that were edited after they were answered.
    rerun_offer: str = (
        "You edited this message after I answered it. "
        "To get a new answer, press the button or send /retry."
    )
    rerun_offer_later: str = (
        "You edited this message after I answered it. To get a new answer, press the button, "
        "which also removes everything said here since then. Or send it as a new message."
    )
    """If newer messages are removed as well."""
    rerun_offer_former: str = (
        "You edited this message after I answered it, and this conversation has moved on without it. "
        "To get a new answer, press the button or send it as a new message."
    )
    """If the message is not part of the current conversation."""

    # Instead of an answer.
    stopped: str = "⏹ Stopped."
    stopped_by_operator: str = "⏹ An administrator stopped this answer."
    """Used for stops in the console or over the API."""
    interrupted: str = "⏹ Stopped: I am answering your newer message first."
    """A newer message ended the turn."""
    no_answer: str = "(No response from agent)"
    failed: str = (
        "⚠️ Something went wrong and I could not finish this answer. Please send your message again. "
        "If it fails again, tell the person who runs this bot."
    )
    failed_auth: str = (
        "⚠️ The model's key was rejected, so I cannot answer. Please tell the person who "
        "runs this bot that the key in its configuration must be renewed."
    )
    failed_rate_limit: str = (
        "⚠️ The model is overloaded or its quota is used up. Please send your message again in "
        "a minute."
    )
    failed_connection: str = (
        "⚠️ I could not reach the model's server. Please send your message again in a few minutes."
    )
    failed_timeout: str = (
        "⚠️ The model's server did not answer in time. Please send your message again in a few "
        "minutes."
    )
    failed_server: str = (
        "⚠️ The model's server had a problem. Please send your message again in a few minutes."
    )
    failed_steps: str = (
        "⚠️ I used up all my steps before I was finished. Please ask for less at once, "
        "or tell me what to leave out."
    )
    failed_agent: str = (
        "⚠️ {reason} Choose another one with /agent, or the default with /agent default."
    )
    failed_no_agent: str = (
        "⚠️ There is no agent named “{name}”. "
        "Choose another one with /agent, or the default with /agent default."
    )
    agent_name_invalid: str = (
        "⚠️ The agent name “{name}” is not valid: use letters, digits and hyphens."
    )
    agent_unreachable: str = (
        "⚠️ I could not reach the agent's server, so this message was not answered. "
        "Please send it again in a few minutes."
    )
    thread_busy: str = (
        "⚠️ Another request in this conversation is still running. Please send your message "
        "again when it has finished, or send /stop first."
    )
    interrupted_too_often: str = (
        "⚠️ I was interrupted too often while answering this message. Please send it again."
    )
    answer_in_file: str = "📎 This answer is very long. The full answer is in the file below."
    answer_endless: str = (
        "⚠️ This answer did not end, so I stopped it. The part I wrote is in the file below."
    )
    answer_refused: str = (
        "⚠️ I have an answer, but this chat does not accept it. "
        "Please tell the person who runs this bot."
    )
    """The platform refused the answer."""
    moved_to_chat: str = "The topic or thread was deleted or closed, so I answer here."
    moved_to_private: str = "I can no longer write in the chat where you asked, so I answer here."
    """One of these begins an answer that is sent to a different place than its question."""

    # Files. The agent also gets `upload_*`, and tells the person.
    artifact_gone: str = "⚠️ I could not attach **{name}**: the file is no longer there."
    artifact_too_large: str = "⚠️ I could not attach **{name}**: it is larger than {megabytes} MB."
    artifact_empty: str = "⚠️ I could not attach **{name}**: the file is empty."
    artifact_refused: str = "⚠️ I could not attach **{name}**. {reason}"
    file_in_direct_message: str = "📎 I sent you **{name}** in a direct message."
    code_in_file: str = "📎 The code is in the file **{name}**."
    """Replaces code that is too long for a message."""
    upload_attached: str = "[Attached: {names}]"
    upload_failed: str = "[Attachment that could not be read: {name}]"
    upload_failed_because: str = "[Attachment that could not be read: {name} ({reason})]"
    upload_too_many: str = "a message can have at most {count} files"
    upload_too_large: str = "it is larger than {megabytes} MB"
    upload_too_slow: str = "it took too long"

    # Speech. The agent also gets these. `speech_why_*` are the reasons, with the limits in the configuration.
    speech_failed: str = "{name} was not transcribed: {reason}"
    speech_empty: str = "(no words)"
    speech_why_too_long: str = "it is longer than {seconds} s"
    speech_why_too_large: str = "it is larger than {megabytes} MB"
    speech_why_format: str = "this kind of file is not supported"
    speech_why_slow: str = "it took too long"
    speech_why_unavailable: str = "the speech service is not available"
    speech_why_refused: str = "the speech service refused it"
    message_cut: str = (
        "[This message was truncated: of its {length} characters, only the first {kept} are shown.]"
    )
    edited_note: str = "[I edited my message. It now reads:]\n\n{text}"
    """Tells the agent that a message was edited while the agent was working on it."""

    # Slack's agent status and suggested prompts.
    presence_working: str = "is working on it…"
    """Follows the bot's name; at most 50 characters."""
    prompts_title: str = "What can I do for you?"
    prompt_abilities: str = "What can you do?"
    prompt_document: str = "Summarize a document that I am about to send you."
    prompt_search: str = "Search the web for me."

    def help(self, command: str) -> str:
        """Return a command's description, by its name."""
        return str(getattr(self, f"help_{command}"))

    def speech_why(self, failure: str) -> str:
        """Return why a recording was not transcribed, by the failure's name."""
        return str(getattr(self, f"speech_why_{failure}"))

    def schedule_outcome(self, outcome: str) -> str:
        """Return the name of a schedule's outcome."""
        return str(getattr(self, f"schedule_outcome_{outcome}"))

    def why(self, reason: str) -> str:
        """Return the meaning of a reason code, by its value."""
        return str(getattr(self, f"why_{reason}"))


ENGLISH = Messages()
