"""Finding secrets in a configuration's text, and setting one key in it."""

import pytest
import yaml

from gateway.config_text import KeyNotSettable, hide_secrets, set_key

TEXT = """\
# api_key: sk-an-old-secret-key
gateway:
  admin_token: 'written-into-the-file'  # ours
models:
  - name: a
    api_key: "sk-model-secret"
    other: $VARIABLE
    max_tokens: 4000
    default_headers: {X-Api-Key: header-secret, Accept: text/plain}
database: {url: postgresql://bot:hush-hush@db/parley}
hooks:
  ci: {secret: [list-secret]}
voice:
  api_key: |
    first-line-secret
    second-line-secret
  max_seconds: 5
"""
SECRETS = (
    "sk-an-old-secret-key", "written-into-the-file", "sk-model-secret", "header-secret", "hush-hush",
    "list-secret", "first-line-secret", "second-line-secret",
)  # fmt: skip


def test_secrets_are_hidden_and_come_back_when_the_text_is_saved() -> None:
    hidden = hide_secrets(TEXT)
    assert [secret for secret in SECRETS if secret in hidden.text] == []
    assert len(hidden.text.splitlines()) == len(TEXT.splitlines())
    for kept in ("$VARIABLE", "max_tokens: 4000", "# ours", "bot:<hidden-"):
        assert kept in hidden.text
    assert "text/plain" not in hidden.text  # A header's name does not show if it is secret.
    assert yaml.safe_load(hidden.text)["voice"]["max_seconds"] == 5
    assert hidden.restore(hidden.text) == TEXT
    sections = hidden.text.replace("database:", "\0database:").split("\0")
    moved = "".join(reversed(sections))
    original = TEXT.replace("database:", "\0database:").split("\0")
    assert hidden.restore(moved) == "".join(reversed(original))


def test_a_text_that_is_not_yaml_hides_secrets_too() -> None:
    broken = "gateway: [\n  admin_token: written-into-the-file\n"
    hidden = hide_secrets(broken)
    assert "written-into-the-file" not in hidden.text
    assert hidden.restore(hidden.text) == hidden.text  # The service would not use it.
    assert hidden.restore(hidden.text.replace("[", "")) == broken.replace("[", "")


def test_a_mark_of_another_text_is_refused() -> None:
    with pytest.raises(KeyNotSettable, match="line 2: <hidden-99> stands for no secret"):
        hide_secrets(TEXT).restore("a: 1\nb: <hidden-99>\n")


@pytest.mark.parametrize(
    "edited",
    [
        "name: <hidden-3>\n",
        "name: &x <hidden-3>\nmodels: [{api_key: *x}]\n",
        "database: {url: <hidden-5>}\n",
        "database: {url: postgresql://<hidden-5>:x@db/parley}\n",
        "models: [{base_url: 'http://bot:<hidden-5>@x'}]\n",
        "models: [{api_key: <hidden-1>, api_key2: <hidden-1>}]\n",
        "# api_key <hidden-1>\n",
        "# url: postgresql://bot:<hidden-3>@db\n",
        "m: [a, !<hidden-3> b]\n",
        "<hidden-3>: 1\n",
        "gateway: {admin_token: '<hidden-2>'}\n",
    ],
)
def test_a_mark_may_only_stand_where_it_was_handed_out(edited: str) -> None:
    with pytest.raises(KeyNotSettable, match="stands for the secret of another key"):
        hide_secrets(TEXT).restore(edited)


def test_aliases_in_aliases_do_not_fill_the_memory() -> None:
    bomb = "a0: &a0 {token: hush-hush}\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
    )
    hidden = hide_secrets(bomb)
    assert "hush" not in hidden.text
    assert hidden.restore(hidden.text) == hidden.text


@pytest.mark.parametrize(
    ("text", "path", "value", "after"),
    [
        ("a: 1  # one\n", "a", "2", "a: 2  # one\n"),
        ("a:  # one\nb: 1\n", "b", "[x, y]", "a:  # one\nb: [x, y]\n"),
        ("m:\n- name: a  # n\n  x: 'q'\n", "m[0].x", "5", "m:\n- name: a  # n\n  x: 5\n"),
        ("m:\n- name: a  # n\n", "m[0].y", "5", "m:\n- name: a  # n\n  y: 5\n"),
        ("c: {s: {a: 1}}\n", "c.s.b", "true", "c: {s: {a: 1, b: true}}\n"),
        ("c: {}\n", "c.s.b", "true", "c: {s: {b: true}}\n"),
        ("c:\n  s:\nd: 1\n", "c.s.b", "true", "c:\n  s: {b: true}\nd: 1\n"),
        ("c:\n    s: 1\n\n# last\n", "c.t", "2", "c:\n    s: 1\n    t: 2\n\n# last\n"),
        ("c: 1", "d.e", "2", "c: 1\nd:\n  e: 2\n"),
        ("", "d", "2", "d: 2\n"),
        ("t: |\n  x\n  y\n\nz: 1\n", "z", "2", "t: |\n  x\n  y\n\nz: 2\n"),
    ],
)
def test_one_key_is_set_and_everything_else_stays(
    text: str, path: str, value: str, after: str
) -> None:
    assert set_key(text, path, value) == after


@pytest.mark.parametrize(
    ("text", "path", "value", "why"),
    [
        ("a: [", "a", "1", "not YAML"),
        ("a: {b: 1}\n", "a.c", "x, d: 2", "another meaning"),
        ("a: 1\n", "a", "[", "another meaning"),
        ("a: 1\n", "a", "1\nb: 2", "one line"),
        ("m: []\n", "m[0].x", "1", "no such entry"),
        ("m: [a]\n", "m.x", "1", "belongs to a list"),
        ("a:\n  b: 1\n", "a", "1", "several lines"),
        ("t: |\n  x\n", "t", "1", "several lines"),
        ("t: 1\n", "t.x", "1", "plain value"),
    ],
)
def test_what_cannot_be_set_says_why(text: str, path: str, value: str, why: str) -> None:
    with pytest.raises(KeyNotSettable, match=why):
        set_key(text, path, value)
