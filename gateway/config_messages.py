"""The messages of the configuration's editor in the reader's language. Pure.

The code that checks a configuration writes English, for terminals and logs. Messages without a translation stay in
English.
"""

import re
from collections.abc import Iterable, Mapping

from bus.locales import supported_language

_CHINESE: Mapping[str, str] = {
    # Results of a change
    "The file is saved.": "文件已保存。",
    "The previous version is back.": "已恢复上一个版本。",
    "It is in force.": "现已生效。",
    "Restart the service for: {}.": "以下部分在服务重启后生效：{}。",
    "The service ignores it: {}": "服务忽略了它：{}",
    # Reasons why nothing was saved
    "There is no configuration file: the service runs with its defaults. `parley init` writes one.":
        "没有配置文件，服务使用默认值。`parley init` 会创建一个。",
    "The file has changed: load it again.": "文件在此期间被改动，请重新加载。",
    "There is no previous version.": "没有上一个版本。",
    "{} is read-only here: change it where it comes from, such as a ConfigMap or a mount.":
        "{} 在此只读：请在其来源处修改，例如 ConfigMap 或挂载。",
    "{} stands for no secret of this file: write the value": "{} 不对应此文件中的密钥：请写出值",
    "the value must be one line: change it in the text": "值必须是一行：请在文本中修改",
    "the list has no such entry: add it in the text": "列表中没有此项：请在文本中添加",
    "belongs to a list: change it in the text": "属于列表：请在文本中修改",
    "the text is not YAML: correct it first": "文本不是 YAML：请先改正",
    "the value would have another meaning there: quote it": "值在此处会有别的含义：请加引号",
    "the value has several lines: change it in the text": "值有多行：请在文本中修改",
    "the section is a plain value: change it in the text": "此节是单个值：请在文本中修改",
    # Findings
    "{}: correct the YAML": "{}：请改正 YAML",
    "duplicate key `{}`; the last value is used": "配置项 `{}` 重复，以最后的值为准",
    "unknown key, ignored": "未知的配置项，会被忽略",
    "unknown key": "未知的配置项",
    "unknown key, not an argument of {}": "未知的配置项，不是 {} 的参数",
    "must be a section of `key: value` lines at its top level": "顶层必须由 `key: value` 行组成",
    "must be a section of `key: value` lines": "必须由 `key: value` 行组成",
    "must be a list, like [a, b]": "必须是列表，如 [a, b]",
    "must be true or false": "必须是 true 或 false",
    "must be a whole number": "必须是整数",
    "must be a number": "必须是数字",
    "must be text": "必须是文本",
    "must not be empty": "不能为空",
    "must be greater than or equal to {}": "必须大于或等于 {}",
    "must be greater than {}": "必须大于 {}",
    "must be less than or equal to {}": "必须小于或等于 {}",
    "must be less than {}": "必须小于 {}",
    "must be '{}' or '{}'": "必须是 '{}' 或 '{}'",
    "must be '{}'": "必须是 '{}'",
    "is missing: add it": "缺失：请添加",
    "the environment variable {} is not set: {}":
        "环境变量 {} 未设置：请设置它（也可以写在配置旁的 .env 文件中），或直接写值",
    "there is no tool group {}": "没有工具组 {}",
    "there is no enabled channel {}": "没有启用的渠道 {}",
    "there is no assistant {}": "没有助手 {}",
    "there is no model {}": "没有模型 {}",
    "there is no agent {}": "没有智能体 {}",
    "channels.{} uses the same bot: give each its own": "channels.{} 使用同一个机器人：请各用一个",
    "is not a bot token from @BotFather (123456789:...)": "不是 @BotFather 给出的机器人令牌（123456789:...）",
}  # fmt: skip
"""English -> Chinese. `{}` matches the part that varies. The first match is used."""

_FORMS = [
    (re.compile(re.escape(english).replace(r"\{\}", "(.+)"), re.S), chinese)
    for english, chinese in _CHINESE.items()
]
_LINE = re.compile(r"^line (\d+)(?:, column \d+)?: ")
_GUESS = re.compile(r"; did you mean (.+)\?$")


def preferred_language(accepted: str) -> str:
    """Return the supported language of an `Accept-Language` header that its reader prefers; "en" for others.

    >>> preferred_language("zh-CN,zh;q=0.9,en;q=0.8"), preferred_language("fr, zh"), preferred_language("")
    ('zh', 'zh', 'en')
    """
    tags = (one.partition(";")[0].strip() for one in accepted.split(","))
    return next(filter(None, map(supported_language, tags)), "en")


def translate(message: str, language: str) -> str:
    """Return a message in a language. Text before it, such as its key, stays.

    >>> translate("titel: unknown key, ignored; did you mean `title`?", "zh")
    'titel: 未知的配置项，会被忽略；是否想写 `title`？'
    >>> translate("a.b: is odd", "zh"), translate("a: must be text", "en")
    ('a.b: is odd', 'a: must be text')
    """
    if language != "zh":
        return message
    guess = _GUESS.search(message)
    told = message[: guess.start()] if guess else message
    for start in (0, *(found.end() for found in re.finditer(": ", told))):
        for form, chinese in _FORMS:
            if found := form.fullmatch(told, start):
                before = _LINE.sub(r"第 \1 行：", told[:start])
                after = f"；是否想写 {guess[1]}？" if guess else ""
                return before + chinese.format(*found.groups()) + after
    return message


def translate_all(messages: Iterable[str], language: str) -> list[str]:
    """Return messages in a language."""
    return [translate(one, language) for one in messages]
