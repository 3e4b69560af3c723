"""Simplified Chinese messages of the agent."""

from agent.locales.messages import AgentMessages

_AGAIN = "请过几分钟重新发送消息。"
_OPERATOR = "请联系机器人的管理员"

CHINESE = AgentMessages(
    model_auth=f"⚠️ 模型拒绝了访问密钥，我无法回答。{_OPERATOR}：需要更新配置中的密钥。",
    model_quota=f"⚠️ 模型账户的额度已用完，我无法回答。{_OPERATOR}：需要为模型服务账户充值。",
    model_rate_limit="⚠️ 模型当前请求过多。请过一分钟重新发送消息。",
    model_server=f"⚠️ 模型服务出现故障。{_AGAIN}",
    model_timeout=f"⚠️ 模型服务响应超时。{_AGAIN}",
    model_connection=f"⚠️ 无法连接模型服务。{_AGAIN}",
    model_context="⚠️ 本对话已超出模型的长度上限。请发送 /new 开始新对话，并重新说明要点。",
    model_request="⚠️ 模型拒绝了这次请求。请发送 /new 后重新提问；如果仍然失败，请联系机器人的管理员。",
    model_circuit_open=f"⚠️ 模型服务连续多次出错，我先暂停片刻再试。{_AGAIN}",
    filtered="⚠️ 回答被模型服务的内容安全过滤拦截。请换一种说法再试。",
    answer_filtered="⚠️ 回答到此被模型服务的内容安全过滤中断。",
    answer_cut_off="⚠️ 回答到此中断：模型已达到长度上限。可以让我继续。",
    answer_stopped="⚠️ 模型服务提前结束了这个回答，内容可能不完整。请再问一次。",
    answer_ended_oddly="⚠️ 这个回答可能不完整：模型服务给出的结束原因是“{reason}”。",
    only_thought="⚠️ 模型把全部长度用在了思考上，没有写出回答。请把问题拆小一些再试；"
    f"如果再次出现，{_OPERATOR}：需要提高模型的令牌上限。",
    step_limit_reached="（步骤数已用完，任务还没有完成。请把任务拆小一些再试。）",
    turn_budget_reached="（单条消息的令牌额度已用完，任务还没有完成。请把任务拆小一些再试。）",
    loop_detected="（我一直在重复相同的步骤，已停止。请告诉我应该怎样调整，或先处理其中一小部分。）",
    sources="来源：",
    usage_limit_person="你的额度（{amount}）已用完，将于 {resets} 重置。如需更多额度，请联系机器人的管理员。",
    usage_limit_room="本聊天的额度（{amount}）已用完，将于 {resets} 重置。",
    usage_limit_agent="这个智能体的额度（{amount}）已用完，将于 {resets} 重置。你可以用 /agent 选择其他智能体。",
    usage_limit_service="我的总额度（{amount}）已用完，{resets} 之后我才能继续回答。",
    usage_warning_person="（你的额度（{amount}）已使用 {percent}%，将于 {resets} 重置。）",
    usage_warning_room="（本聊天的额度（{amount}）已使用 {percent}%，将于 {resets} 重置。）",
    default_question="接下来我该怎么做？",
    approval_needed="执行这个工具调用需要你的同意。",
    mcp_question="🔌 MCP 服务器“{server}”询问：",
    mcp_accept="同意",
    mcp_decline="拒绝",
    mcp_skip="跳过",
    mcp_yes="是",
    mcp_no="否",
    mcp_unfit="⚠️ 这个回答不符合要求，请再试一次。",
)
