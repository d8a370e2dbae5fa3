"""How a sweep is carried out, as options."""

from __future__ import annotations

from dataclasses import dataclass, field

from scansnap.validation.options import Options, option


@dataclass(frozen=True, kw_only=True)
class Execution(Options):
    """How a sweep is carried out; this cannot change any number."""

    memory: float | None = field(
        default=None,
        metadata=option(
            "GiB that training may use at a time", axis=False, least=1e-6, most=1e6, none="takes a quarter of all"
        ),
    )
    shard_size: int | None = field(
        default=None,
        metadata=option("Runs trained together", axis=False, least=1, none="takes a number that shows progress"),
    )
    cluster: str | None = field(
        default=None, metadata=option("ray for a cluster on this machine, or the address of a cluster.", axis=False)
    )
    retries: int = field(default=2, metadata=option("How often to retry a shard that fails.", axis=False, least=0))
