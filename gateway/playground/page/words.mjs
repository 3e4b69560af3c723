// The page's own words, in English and Chinese. Messages of people and the bot are not translated.

/** @type {Record<string, Record<string, string>>} */
const WORDS = {
  en: {
    title: "Parley playground", speakAs: "Speak as", recording: "Download recording", language: "Language",
    places: "Places", chat: "Chat", behind: "Behind it", attach: "Attach", send: "Send", source: "Source",
    search: "Search", all: "everything", fair: "fair", kill: "Kill the service", start: "Start the service",
    reply: "Reply", thread: "Reply in thread", edit: "Edit", delete: "Delete", cancel: "Cancel", remove: "Remove",
    replyTo: "Reply to", inThread: "In the thread of", editing: "Edit", edited: "edited", only: "only visible to",
    approve: "Approve as the operator", copy: "Copy as curl", copied: "Copied.", empty: "Nothing has been said here.",
    colleague: "colleague", stranger: "stranger", guest: "guest", bot: "another bot", private: "private",
    gone: "The playground does not answer. Is it running?", weather: "Weather", model: "Model", service: "Service",
    answer: "Answer", violations: "What the real platform would refuse", write: "Write a message",
    telegram: "Telegram", slack: "Slack", feishu: "Feishu", person: "people",
    "dropped connections": "drop", redelivery: "redeliver", "model slow": "slow", "model broken": "broken",
    "model cut off": "cut off", "model overflowing": "overflowing",
  },
  zh: {
    title: "Parley 演练场", speakAs: "身份", recording: "下载记录", language: "语言",
    places: "会话", chat: "聊天", behind: "幕后", attach: "附件", send: "发送", source: "来源",
    search: "搜索", all: "全部", fair: "正常", kill: "终止服务", start: "启动服务",
    reply: "回复", thread: "在话题中回复", edit: "编辑", delete: "删除", cancel: "取消", remove: "移除",
    replyTo: "回复", inThread: "话题：", editing: "编辑", edited: "已编辑", only: "仅可见于",
    approve: "以管理员身份批准", copy: "复制为 curl", copied: "已复制。", empty: "这里还没有消息。",
    colleague: "同事", stranger: "陌生人", guest: "访客", bot: "另一个机器人", private: "私聊",
    gone: "演练场没有响应。它在运行吗？", weather: "故障", model: "模型", service: "服务",
    answer: "响应", violations: "真实平台会拒绝的请求", write: "输入消息",
    telegram: "Telegram", slack: "Slack", feishu: "飞书", person: "人",
    "rate limit": "限流", "server error": "服务器错误", "lost answer": "响应丢失", slow: "缓慢", outage: "中断",
    "dropped connections": "断开", redelivery: "重发", "model slow": "缓慢", "model broken": "出错",
    "model cut off": "截断", "model overflowing": "超出窗口",
  },
};

const KEY = "parley.playground.language";

export let language = localStorage.getItem(KEY) ?? (navigator.language.startsWith("zh") ? "zh" : "en");

export function setLanguage(/** @type {string} */ chosen) {
  language = chosen;
  localStorage.setItem(KEY, chosen);
}

/** Return the page's word for a key, or the key itself. */
export const word = (/** @type {string} */ key) => WORDS[language][key] ?? key;

/** Set the words of the static elements. */
export function translatePage() {
  document.documentElement.lang = language;
  for (const one of /** @type {any} */ (document.querySelectorAll("[data-word]"))) one.textContent = word(one.dataset.word);
  for (const one of /** @type {any} */ (document.querySelectorAll("[data-placeholder]"))) {
    one.placeholder = word(one.dataset.placeholder);
    one.setAttribute("aria-label", one.placeholder);
  }
}
