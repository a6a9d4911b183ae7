"""snaprt: an asyncio snapshot runtime with full-state serialisation."""
