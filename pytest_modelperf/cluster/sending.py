"""A model on its way to a machine: piece by piece, straight to its worker where that is possible.

At most one piece of each model that is sent lies in the memory of this process, and of the
scheduler, which passes on what cannot go straight.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pytest_modelperf.cluster.contents import read_pieces
from pytest_modelperf.cluster.records import ModelContent

# The longest that opening a direct connection may take. After it, data goes by the scheduler.
_CONNECT_S = 3.0
# At most this many models are sent at the same time, which bounds the pieces in memory.
_AT_ONCE = 4
_LOST = "the connection to the machine was lost"


class Sender:
    """Sends models of this client, and other messages, to the workers of a cluster."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401  # a Dask client, which has no types
        self._client = client
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._unreachable: set[str] = set()

    async def send(self, model: ModelContent, address: str, key: str) -> None:
        """Send a model to the job that waits for it; what goes wrong is told to the job."""
        async with self._room:
            error: str | None = None
            try:
                pieces = read_pieces(model)
                while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                    error = await self.ask(
                        address,
                        "modelperf_put",
                        key=key,
                        name=piece.name,
                        offset=piece.offset,
                        data=piece.data,
                    )
                    if error is not None:
                        break
            except OSError as problem:
                error = str(problem)
            await self.ask(address, "modelperf_end", key=key, error=error)

    async def ask(self, address: str, operation: str, **values: object) -> Any:  # noqa: ANN401  # plain values
        """The answer of a worker; an error if the message did not reach it."""
        if address not in self._unreachable:
            try:
                connected = self._client.rpc.connect(address)
                self._client.rpc.reuse(address, await asyncio.wait_for(connected, _CONNECT_S))
                return await getattr(self._client.rpc(address), operation)(**values)
            except (OSError, asyncio.TimeoutError):
                self._unreachable.add(address)
        try:
            answers = await self._client.scheduler.broadcast(
                msg={"op": operation, **values}, workers=[address], on_error="ignore"
            )
        except OSError:
            return _LOST
        return answers.get(address, _LOST)
