// The console's words in Chinese.

/** @type {Record<string, Record<string, string>>} */
export const texts = {
  nav: {
    overview: "概览", messages: "消息", conversations: "会话", deliveries: "发送", people: "用户", broadcast: "群发", sessions: "登录会话",
    "group.watch": "查看", "group.act": "操作", "group.manage": "管理", chat: "聊天", configuration: "配置", logs: "日志", audit: "审计",
    tokens: "令牌", usage: "用量", agents: "智能体", models: "模型", tools: "工具", skills: "技能", schedules: "定时任务",
  },
  shell: {
    language: "语言", skip: "跳到内容", views: "视图", live: "变化会立即显示", "not-live": "未连接：变化不会显示",
  },
  "sign-in": {
    token: "管理员令牌，或用 `parley token create` 创建的令牌",
    hint: "管理员令牌在数据文件夹的 admin_token 文件中。服务启动时也会打印一次性登录链接。",
    "no-token": "这不是令牌：请求无法携带这些字符。", ended: "登录会话已结束，请重新登录。",
    "link-used": "此链接已被使用或已过期。请用令牌登录。",
  },
  action: {
    "sign-in": "登录", "sign-out": "退出", cancel: "取消", close: "关闭", again: "重试", undo: "撤销", reconnect: "重新连接", answer: "回答",
    resend: "重新发送", discard: "丢弃", approve: "批准", revoke: "撤销权限", end: "结束", send: "发送", edit: "编辑", reject: "拒绝",
    stop: "停止", repeat: "重新回答", save: "保存", rotate: "更换", delete: "删除", download: "下载", "let-in-person": "允许此用户",
    "let-in-chat": "允许此群", restore: "恢复",
  },
  notice: {
    failed: "操作失败。", "no-answer": "Parley 没有响应。它在运行吗？",
  },
  time: {
    never: "从未", now: "刚刚", s: "{count} 秒前", min: "{count} 分钟前", h: "{count} 小时前", d: "{count} 天前",
  },
  table: {
    older: "显示更早的", news: "{count} 条新内容", actions: "操作",
  },
  filter: {
    search: "搜索", all: "全部",
  },
  column: {
    received: "收到时间", where: "位置", who: "用户", message: "消息", state: "状态", used: "最近使用",
    waiting: "等待中", created: "创建时间", content: "内容", attempts: "次数", asked: "请求时间", channel: "渠道", code: "配对码",
    approved: "批准时间", last: "最近消息", kind: "身份", name: "名称",
  },
  state: {
    ready: "就绪", degraded: "部分可用", unreachable: "无法连接", connected: "已连接", failed: "失败",
    pending: "等待发送", sending: "发送中", uncertain: "不确定", delivered: "已送达", current: "当前浏览器", done: "完成", completed: "已完成",
    in_progress: "进行中", approved: "已批准", answered: "已回答", undelivered: "未能送达", waiting: "等待用户", silent: "未作回答", stopped: "已停止",
    running: "处理中", refused: "已拒绝", not_addressed: "不是发给机器人的", queued: "排队中", interrupted: "被更新的消息取代",
    deleted: "已删除", joined: "已一并回答", command: "命令", problem: "问题", warning: "警告", note: "提示", ok: "正常",
    restart: "等待重启", taken_over: "人工回复", listed: "在 allowed_users 中", open: "对所有人开放", disabled: "已停用",
    deferred: "按需加载", in_prompt: "在提示词中", denied: "已拦截", rejected: "未批准", paused: "已暂停", unchanged: "无变化",
    skipped: "已跳过", missed: "已错过", discarded: "已丢弃",
  },
  overview: {
    channels: "渠道", since: "自", "last-event": "最近事件", problems: "{count} 个问题", findings: "{count} 处需要处理", well: "检查全部通过。",
    again: "重新检查", all: "全部检查（{count}）", failed: "处理失败", undelivered: "未能送达", uncertain: "是否送达未知",
    waiting: "等待用户", refused: "已拒绝", people: "用户请求使用", span: "统计范围", hour: "最近一小时", day: "最近一天", week: "最近一周", messages: "消息", answers: "已回答",
    errors: "失败", others: "其他", sign: "首次响应", answer: "完整回答", tokens: "Token 用量", cost: "费用",
  },
  messages: {
    search: "文字、用户或位置", "no-text": "（未保存文本）", "repeat-words": "消息的新措辞；留空则保持原文",
    "repeat-text": "智能体会忘记它及其后的内容。回答会发送到同一聊天。",
  },
  conversation: {
    title: "会话",
  },
  speaker: {
    human: "用户", ai: "智能体", tool: "工具",
  },
  deliveries: {
    "sent-again": "正在重新发送。", discarded: "已丢弃。", search: "错误中的文字",
    "resend-all": "全部重新发送（{count}）", "discard-all": "全部丢弃（{count}）",
    "resend-text": "结果不明的消息可能出现两次。此操作无法撤销。", "resend-done": "正在重新发送 {changed} 条，共 {count} 条。",
    "discard-done": "已丢弃 {changed} 条，共 {count} 条。", remaining: "还有 {count} 条符合条件，请再次操作。", restored: "已恢复原状。",
    twice: "重新发送后可能出现两次。", once: "这是对已有消息的修改，重新发送不会重复出现。",
    "once-until": "{time} 之前，{platform} 会按幂等键丢弃重复发送，不会出现两次。",
  },
  people: {
    waiting: "等待批准", "nobody-waits": "没有人在等待。", "approved-list": "已批准",
    "nobody-approved": "还没有用配对码批准的用户。渠道的配置决定还有谁可以使用。", approved: "已批准 {name}。",
    revoked: "{name} 不再有权限。", rooms: "聊天", month: "本月", members: "已回复人数",
  },
  sessions: {
    browser: "浏览器", link: "登录链接", address: "地址", "opened-with": "登录方式",
    "not-opened": "尚未打开", admin: "管理员令牌或链接", scope: "权限范围", ended: "登录会话已结束。", "new-link": "新的登录链接",
    "link-text": "此链接在 12 小时内可登录一次，拥有全部权限。只发给管理员。",
    text: "登录会话随打开它的令牌一起结束，或在一周未使用后结束。",
  },
  chat: {
    new: "新对话", threads: "本页的对话", "no-threads": "还没有对话。", empty: "给智能体写消息。文件可以拖到这里。", agent: "智能体或图",
    files: "添加文件", "leave-out": "移除", working: "智能体正在工作……", plan: "计划", artifacts: "智能体的文件",
    approval: "智能体请求批准", question: "智能体提问", answer: "回答", reason: "拒绝的理由", "edit-title": "编辑消息",
    "edit-text": "智能体会忘记这条消息及其后的内容，并回答新的文字。工具已经做的事不会撤销。", fork: "在对话的副本中进行（不含文件）",
    "no-text": "请先写消息。", gone: "服务已不再保留这条消息之前的状态。", arguments: "参数", values: "状态值", input: "JSON 输入：",
    lost: "Parley 没有响应，页面会继续重试……", "read-only": "此处只能阅读。要发消息，请用 operator 或 admin 权限的令牌登录。",
  },
  broadcast: {
    about: "向每个有人给机器人写过消息的聊天发送一条消息。", text: "消息（Markdown）", to: "发给", private: "私聊",
    groups: "群聊", all: "私聊和群聊", every: "所有已连接的渠道", count: "统计聊天数", chats: "聊天数", denied: "未获准",
    "left-out": "未包含的原因", "no-channel": "没有启用的渠道。", nobody: "没有人会收到。", send: "发送到 {count} 个聊天",
    sent: "已发送到 {count} 个聊天。", stopped: "群发已停止。已在途中的消息仍会发送。", past: "过去的群发",
  },
  reason: {
    pairing: "此用户需要批准。", group_pairing: "此群需要批准。", not_allowed: "渠道不接受此用户或群。",
    external: "渠道不接受访客和外部人员。", disabled: "渠道不在此处回答。", from_bot: "来自其他机器人。",
    empty: "没有机器人可读的内容。", queue_full: "会话中等待的消息过多。", rate_limited: "此用户发送的消息过多。",
    not_addressed: "用户之间的消息。", unsupported: "机器人不读取此类消息。", too_late: "到得太晚。", taken_over: "该对话当时由人工接手。",
    approval: "工具在聊天中等待批准。", question: "智能体在聊天中提了问题。",
  },
  list: {
    time: "时间", none: "没有找到内容。", saved: "已完成。", deleted: "已删除。", enable: "启用", disable: "停用",
  },
  configuration: {
    key: "配置项", value: "当前值", source: "来源", default: "默认值", restart: "重启后生效", edit: "编辑文件",
    about: "密钥不显示，保留 <hidden-1> 即沿用原值。", difference: "改动",
  },
  logs: {
    level: "级别", logger: "模块",
  },
  tokens: {
    expires: "到期时间", days: "有效天数，留空则不过期", new: "新建令牌", once: "请立即复制，之后不再显示。",
    sure: "使用当前值的程序将立即失去访问权限。",
  },
  takeover: {
    title: "由谁回复", about: "由你以机器人的身份回复，直到交还。", begin: "接手对话",
    begun: "你已接手对话，正在进行的回答已停止。", by: "{by} 正在人工回复，智能体保持沉默。", text: "以机器人身份发送的消息",
    send: "以机器人身份发送", sent: "消息正在发送。", summary: "智能体将读到的内容", end: "交还",
    ended: "智能体已恢复回复，并会在下一条消息时读到期间的对话。",
  },
  timeline: {
    fork: "在对话页中分叉", forget: "清除记忆", forgotten: "记忆已删除。",
    "forget-text": "机器人对 {scope} 的全部记忆将被永久删除，与 /forget 相同。本会话的消息会保留。",
    unknown: "智能体服务器没有响应，因此看不到模型和工具的内容。", gone: "线程里已没有它：已被摘要、撤销或重新回答。", why: "经过",
    decision: "回答原因", queue: "等待", run: "运行",
    used: "{model} × {count}：{input_tokens} Token（缓存 {cached_tokens}）→ {output_tokens}，${cost}", sent: "最后发送", event: "事件",
    prompt: "下一条提示词",
  },
  admitted: {
    private: "私聊", mention: "发给机器人", follow_up: "话题中的后续消息", answer: "回答了提问", schedule: "定时任务", hook: "其他系统",
  },
  profile: {
    memory: "记忆", fact: "事实", add: "添加", "forget-one": "忘记", forget: "全部忘记", configured: "按配置",
    "forget-text": "删除所有智能体的全部记忆，用量仅保留总和。无法撤销。", settings: "生效的设置",
  },
  source: {
    model: "模型", default: "默认", service: "服务", channel: "渠道", room: "聊天", person: "用户", command: "命令", agent: "智能体",
    platform: "平台", message: "最近的消息", host: "本机",
  },
  usage: {
    input_tokens: "输入 Token", output_tokens: "输出 Token", calls: "调用", since: "从", until: "到", others: "其他",
  },
  agents: {
    about: "说明", default: "默认", groups: "工具组", "name-hint": "改名会创建副本。", "list-hint": "留空为全部，- 为无。{groups}",
    new: "新建智能体", prompt: "提示词", "lead-prompt": "主智能体的提示词", try: "按表单的当前内容试用，无需保存，别人看不到。",
  },
  model: {
    can: "能力", vision: "看图", thinking: "思考", context: "上下文（Token）", price: "美元/百万，入/出", used: "使用者", test: "测试",
  },
  tool: {
    from: "来源", "built-in": "Parley", web: "网络", mcp: "MCP", custom: "配置", tokens: "Token", call: "调用",
    "call-text": "服务器会真正执行，不受护栏限制。", servers: "MCP 服务器", address: "地址或命令", server: "MCP 服务器",
    "server-text": "*** 保留已存的密钥。", add: "添加服务器", remove: "已存的密钥也会删除。", decisions: "护栏的决定", reason: "原因",
  },
  skill: {
    public: "公共", custom: "自定义", read: "阅读", history: "历史", rollback: "撤销此更改", install: "安装文件",
  },
  schedules: {
    next: "下次", last: "上次运行", runs: "运行记录", run: "立即运行", pause: "暂停", resume: "恢复", new: "新建定时任务", cron: "cron",
    every: "每隔", once: "一次", times: "时间", "times-hint": "cron：0 9 * * 1-5；每隔：30m、1d；一次：2026-12-01T09:00", timezone: "时区",
    "timezone-hint": "留空为所有者的时区", hours: "有效时段", due: "应运行于",
  },
  remedy: {
    admitted: "现在机器人会回答。", setting: "配置项：{key}", allowed_users: "如要允许此用户，请将 {id} 加入 {key}。",
  },
};
