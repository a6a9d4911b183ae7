"""A pydantic-ai agent that asks two people at once, and may lose its process while they think.

pydantic-ai is used as it comes: `Agent.run` is plain asyncio code, so snaprt saves it in the middle of
its own graph, with both tool calls parked. The model here is pydantic-ai's scripted `FunctionModel`,
so that the example runs without a network; put any model of yours in its place, with its call
wrapped as a tool (`@snaprt.tool(effect="read")`), since a model call is I/O.

    snaprt run examples/pydantic_ai_approval.py:buy --run-id shopping
    snaprt resume shopping --answer '{"approved": true}' --suspension ask-1
    snaprt resume shopping --answer '{"approved": false}' --suspension ask-2
"""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import snaprt

PRICES = {"laptop": 1899, "monitor": 649}


@snaprt.tool(effect="read")
async def price_of(item: str) -> int:
    """Ask the shop for the price, in euros."""
    return PRICES[item]


@snaprt.tool
async def order(item: str, *, idempotency_key: str) -> str:
    """Buy it. The key is the same after every restore, so that a shop can refuse a repeat."""
    return f"{item} ordered ({idempotency_key})"


async def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """A scripted model: asks for both purchases at once, then sums up what came of them."""
    if len(messages) == 1:
        return ModelResponse(parts=[ToolCallPart("purchase", {"item": item}) for item in PRICES])
    returns = [str(part.content) for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    return ModelResponse(parts=[TextPart("; ".join(returns))])


assistant: Agent[None, str] = Agent(FunctionModel(script), instructions="You buy what the office needs.")


@assistant.tool_plain
async def purchase(item: str) -> str:
    """Buy an item, after a person approved its price."""
    price = await price_of(item)
    answer = await snaprt.suspend({"text": f"Buy a {item} for {price} euros?", "item": item, "price": price})
    if not answer["approved"]:
        return f"{item} refused"
    return await order(item)


@snaprt.agent(rules={"model": "script-1", "prompt": "You buy what the office needs."})
async def buy(request: str = "A laptop and a monitor for the new colleague, please.") -> str:
    """Run the pydantic-ai agent, unchanged, inside a durable run."""
    plan = snaprt.plan("shop")
    plan.start("shop")
    result = await assistant.run(request)
    plan.done("shop")
    return result.output
