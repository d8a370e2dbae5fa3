"""A pass of (Y, Z) over a text beside a pass of the published transformer: time, memory, ratio.

    python benchmarks/text_yz.py PATH            # on a CPU, and on a GPU if there is one

Alternating blocks of updates of both models are compared: on a CPU by processor time, which other programs change
least, on a GPU by the time until it is done.  On a GPU a whole pass of (Y, Z) is also timed as a user runs it, with its
records and the validation loss.
"""

from __future__ import annotations

import argparse
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Literal

import torch

from scansnap.corpus.batches import Columns
from scansnap.corpus.corpus import Corpus, read_corpus
from scansnap.text.options import TextOptions, TextShape, YZShape, YZTextOptions
from scansnap.text.processes import Processes
from scansnap.text.train import train_text
from scansnap.text.transformer import TextTransformer
from scansnap.text.updates import Learner, TransformerUpdates, YZUpdates
from scansnap.text.yz import YZText

Device = Literal["cpu", "cuda"]

SECONDS: dict[Device, float] = {"cpu": 20.0, "cuda": 0.3}
"""The length of a block."""


def learner(corpus: Corpus, options: TextOptions | YZTextOptions) -> Learner:
    """A model at its start."""
    processes = Processes(options.device)
    torch.manual_seed(0)
    with processes.device:
        if isinstance(options, YZTextOptions):
            yz = YZText(YZShape.of(options, vocab_size=corpus.vocab_size))
            for matrix in yz.parameters():
                matrix.zero_()  # takes all the memory now that a pass would take by and by
            return YZUpdates(yz, options, processes)
        transformer = TextTransformer(TextShape.of(options, vocab_size=corpus.vocab_size))
    return TransformerUpdates(transformer.train(), options, processes)


def clock(device: Device) -> float:
    """Seconds: of the processors, or until the GPU is done."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def peak_memory(device: Device) -> float:
    """GiB: of this process so far, or allocated on the GPU."""
    if device == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return torch.cuda.max_memory_allocated() / 2**30


def timed(corpus: Corpus, options: TextOptions | YZTextOptions) -> Callable[[float], float]:
    """A function that runs updates for a given number of seconds and returns the seconds that a pass takes at that."""
    model, columns = learner(corpus, options), Columns(corpus.train, options.batch_size, options.window)
    step, per_update = 0, 0.0

    def go(seconds: float) -> float:
        nonlocal step, per_update
        count = max(1, round(seconds / per_update)) if per_update else 1
        began = clock(options.device)
        for _ in range(count):
            model.update(step, *columns.at(step))
            step += 1
        per_update = (clock(options.device) - began) / count
        return per_update * columns.per_pass

    return go


def compare(corpus: Corpus, device: Device, blocks: int) -> None:
    yz = timed(corpus, YZTextOptions(device=device))
    for _ in range(2):  # a GPU captures its graph at the first update
        yz(0.0)
    memory = peak_memory(device)
    transformer = timed(corpus, TextOptions(device=device))
    for _ in range(2):
        transformer(0.0)
    pairs = [(yz(SECONDS[device]), transformer(SECONDS[device])) for _ in range(blocks)]
    ratios = [ours / theirs for ours, theirs in pairs]
    ours, theirs = (statistics.median(times) for times in zip(*pairs, strict=True))
    what = "s of processor time" if device == "cpu" else "s"
    print(
        f"{device}: a pass of (Y, Z) {ours:.2f} {what}, of the published transformer {theirs:.2f}; ratio "
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}) over {blocks} alternating blocks; "
        f"most memory with (Y, Z) {memory:.2f} GiB",
        flush=True,
    )


def whole_pass(corpus: Corpus, device: Device) -> None:
    for residual in (False, True):
        began = time.perf_counter()
        run = train_text(corpus, model="yz", device=device, residual=residual, progress=False)
        spent = time.perf_counter() - began
        print(
            f"{device}: a run of one pass, residual {residual}: {spent:.2f} s with {run.sizes['step']} records; loss "
            f"{float(run['loss'][0, -1]):.3f}, validation loss {float(run['valid_loss'][0, -1]):.3f}, entropy of "
            f"attention {float(run['normalized_entropy'][0, -1].mean()):.3f} of the largest",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", help="a text file or folder")
    parser.add_argument("--blocks", type=int, default=5, help="blocks of updates of each model")
    parser.add_argument("--threads", type=int, default=2, help="threads on the CPU")
    parser.add_argument("--only", choices=("cpu", "cuda"), help="one device")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    corpus = read_corpus(arguments.text)
    devices: list[Device] = (
        [arguments.only] if arguments.only else ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]
    )
    gpu = f", {torch.cuda.get_device_name()}" if "cuda" in devices else ""
    print(
        f"{platform.machine()}, {arguments.threads} threads{gpu}, torch {torch.__version__}, "
        f"Python {sys.version.split()[0]}; {corpus.vocab_size:,} token types, "
        f"{len(corpus.train):,} training tokens"
    )
    for device in devices:
        compare(corpus, device, arguments.blocks)
        if device == "cuda":
            whole_pass(corpus, device)


if __name__ == "__main__":
    main()
