#!/usr/bin/env python3
"""Decode beside other libraries: one process, one GPU, the same tensors.

A case is FORMAT/BATCHxKV_LEN: bf16 queries, one a sequence, against KV_LEN
cached tokens each, 32 q heads on 8 kv heads, head_dim 128, pages of 16 tokens
in random order. kvforge's store kernel fills the cache; then run

  kvforge     on the cache
  flashinfer  BatchDecodeWithPagedKVCacheWrapper on the same codes; a scale per
              tensor only, so not on e4m3_row
  torch:NAME  scaled_dot_product_attention with that backend, on the dequantized
              rows as dense bf16, twice the bytes; dequantizing is not timed

Every output is compared with attention in float64 over the dequantized rows of
the first and the last sequence. Times are medians of CUDA events around one
call each, the L2 cache overwritten in between. GB/s counts each one's own cache
bytes. `ratio`: its time over kvforge's.

Without a GPU, --dry-run compares small cases on the CPU and times nothing. What
is not installed, or refuses a case, is named.
"""
import argparse
import json
import pathlib
import random
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples"))
import kvforge_ctypes as kf  # noqa: E402
import kvforge_tensors as kt  # noqa: E402

PAGE, DIM = 16, 128
FORMATS = ("e4m3_row", "e4m3_tensor")
GIVEN_SCALES = (0.013, 0.017)  # e4m3_tensor's: of K and V
CASES = ["e4m3_row/1x8192", "e4m3_row/64x2048", "e4m3_row/64x8192",
         "e4m3_tensor/1x8192", "e4m3_tensor/64x2048", "e4m3_tensor/64x8192"]
DRY_CASES = ["e4m3_row/2x40", "e4m3_row/1x19", "e4m3_tensor/2x40"]
BOUND = 1e-2  # of max|o - ref| / max|ref|; bf16 rows round by 2^-9 each
FLUSH_BYTES = 256 << 20  # more than any L2


class Refused(Exception):
    """A library that does not run a case, and why."""


def case_of(text):
    try:
        format_name, sizes = text.split("/")
        batch, kv_len = (int(size) for size in sizes.split("x"))
    except ValueError:
        format_name, batch, kv_len = None, 0, 0
    if format_name not in FORMATS or batch < 1 or kv_len < 1:
        raise argparse.ArgumentTypeError(
            f"{text} is no case; supported: FORMAT/BATCHxKV_LEN with FORMAT "
            f"{' or '.join(FORMATS)}, such as {CASES[0]}")
    return format_name, batch, kv_len


def specs_of(format_name, group, kind):
    return (f"store/{format_name}/d{DIM}/g1/page{PAGE}/{kind}",
            f"decode/{format_name}/d{DIM}/g{group}/page{PAGE}/{kind}")


class Problem:
    """A filled cache, one query row a sequence, and references."""

    def __init__(self, library, engine, tensors, case, q_heads, kv_heads):
        format_name, self.batch, self.kv_len = case
        self.name = f"{format_name}/{self.batch}x{self.kv_len}"
        self.tensors, self.kv_heads = tensors, kv_heads
        self.format_name, self.scale = format_name, DIM**-0.5
        store_spec, decode_spec = specs_of(format_name, q_heads // kv_heads,
                                           tensors.query_type)
        self.pages = -(-self.kv_len // PAGE)
        order = list(range(self.batch * self.pages))
        random.Random(1).shuffle(order)
        self.table = [order[b * self.pages:(b + 1) * self.pages]
                      for b in range(self.batch)]
        self.cache = kt.Cache(library, tensors, format_name, DIM, kv_heads,
                              PAGE, len(order), GIVEN_SCALES)
        store = engine.prepare(store_spec)
        for b in range(self.batch):
            k, v = (tensors.normal((self.kv_len, kv_heads, DIM),
                                   tensors.query_type) for _ in range(2))
            slots = tensors.of(self.slots(b), "i64")
            store.run(self.cache.store_args(k, v, slots), tensors.stream())
            tensors.synchronize()  # before these tensors are reused
        self.q = tensors.normal((self.batch, q_heads, DIM), tensors.query_type)
        page_table = tensors.of(self.table, "i32")
        self.attention = kt.Attention(
            self.cache, self.q, [1] * self.batch, [self.kv_len] * self.batch,
            page_table, self.scale)
        self.decode = engine.prepare(decode_spec)
        self.launch = kt.DecodeLaunch(engine, self.decode, tensors, self.batch,
                                      kv_heads)
        self.references = {
            b: kt.attention_float64(
                tensors, tensors.float64(self.q[b:b + 1]),
                self.cache.rows(0, self.slots(b)),
                self.cache.rows(1, self.slots(b)), self.scale)[0][0]
            for b in {0, self.batch - 1}}

    def slots(self, b):
        return [self.table[b][t // PAGE] * PAGE + t % PAGE
                for t in range(self.kv_len)]

    def error(self, out):
        """The worst of the sample; `out`: [batch, q heads, head_dim]."""
        errors = [kt.relative_error(self.tensors, out[b], reference)
                  for b, reference in self.references.items()]
        return max(errors) if all(e == e for e in errors) else float("nan")


# ---- What runs: functions of a problem that give (call, bytes of cache). A call
# gives its output [batch, q heads, head_dim].

def kvforge(problem):
    attention, launch = problem.attention, problem.launch.launch
    stream = problem.tensors.stream()

    def call():
        problem.decode.run(attention.args, launch, stream)
        return attention.out
    return call, (problem.batch * problem.kv_len
                  * problem.cache.token_bytes())


def flashinfer(problem):
    if problem.format_name != "e4m3_tensor":
        raise Refused("its fp8 cache has a scale per tensor, no row scales")
    try:
        import flashinfer as library
    except ImportError as error:
        raise Refused(f"FlashInfer cannot be imported: {error}") from error
    torch = problem.tensors.xp
    if problem.tensors.target != kf.TARGET_CUDA:
        raise Refused("FlashInfer needs a GPU")
    of, batch = problem.tensors.of, problem.batch
    workspace = problem.tensors.zeros((128 << 20,), "u8")
    wrapper = library.BatchDecodeWithPagedKVCacheWrapper(
        workspace, "NHD", use_tensor_cores=True)
    wrapper.plan(
        of([b * problem.pages for b in range(batch + 1)], "i32"),
        of(sum(problem.table, []), "i32"),
        of([(problem.kv_len - 1) % PAGE + 1] * batch, "i32"),
        problem.q.shape[1], problem.kv_heads, DIM, PAGE,
        pos_encoding_mode="NONE", q_data_type=torch.bfloat16,
        kv_data_type=torch.float8_e4m3fn, sm_scale=problem.scale)
    paged = tuple(
        codes.view(torch.float8_e4m3fn).reshape(-1, PAGE, problem.kv_heads, DIM)
        for codes in problem.cache.codes)
    k_scale, v_scale = problem.cache.scales

    def call():
        return wrapper.run(problem.q, paged, k_scale=k_scale, v_scale=v_scale)
    return call, batch * problem.kv_len * problem.cache.token_bytes()


def torch_sdpa(backend):
    def prepare(problem):
        torch = problem.tensors.xp
        if torch.__name__ != "torch":
            raise Refused("PyTorch is not installed")
        attend = getattr(torch.nn.functional, "scaled_dot_product_attention",
                         None)
        try:
            from torch.nn.attention import SDPBackend, sdpa_kernel
            chosen = getattr(SDPBackend, backend)
        except (ImportError, AttributeError) as error:
            raise Refused(f"PyTorch {torch.__version__} has no such backend: "
                          f"{error}") from error
        dense = [torch.stack([
            problem.cache.rows(side, problem.slots(b)).to(torch.bfloat16)
            for b in range(problem.batch)]).transpose(1, 2).contiguous()
            for side in (kf.SIDE_K, kf.SIDE_V)]
        group = problem.q.shape[1] // problem.kv_heads
        # The heads of a group are query rows of one kv head: no copy of K and
        # V a head, and more rows for a tile of the tensor cores.
        q = problem.q.reshape(problem.batch, problem.kv_heads, group, DIM)

        def call():
            with sdpa_kernel(chosen):
                out = attend(q, dense[0], dense[1], scale=problem.scale)
            return out.reshape(problem.q.shape)
        return call, sum(d.numel() * 2 for d in dense)
    return prepare


RUNNERS = {"kvforge": kvforge, "flashinfer": flashinfer,
           "torch:cudnn": torch_sdpa("CUDNN_ATTENTION"),
           "torch:flash": torch_sdpa("FLASH_ATTENTION"),
           "torch:efficient": torch_sdpa("EFFICIENT_ATTENTION"),
           "torch:math": torch_sdpa("MATH")}


def median_us(tensors, call, repeats):
    """Of one call, with a cold L2."""
    cuda = tensors.xp.cuda
    flush = tensors.zeros((FLUSH_BYTES,), "u8")
    for _ in range(3):
        call()
    events = []
    for _ in range(repeats):
        flush.zero_()
        start, end = (cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        events.append((start, end))
    cuda.synchronize()
    return statistics.median(s.elapsed_time(e) * 1000 for s, e in events)


def run_case(problem, names, repeats):
    """Reports of a case, kvforge's first."""
    reports = []
    for name in names:
        report = {"case": problem.name, "name": name}
        reports.append(report)
        try:
            call, cache_bytes = RUNNERS[name](problem)
            error = problem.error(call())
            report.update(error=error, agrees=error <= BOUND)
            if repeats:
                us = median_us(problem.tensors, call, repeats)
                report.update(us=us, gb_per_s=cache_bytes / us / 1e3,
                              ratio=us / reports[0].get("us", us))
        except kf.Error:
            raise
        except Exception as error:  # whatever another library throws
            if name == "kvforge":
                raise
            report["refused"] = " ".join(str(error).split())[:200]
    return reports


def line_of(report):
    start = f"{report['case']:22} {report['name']:16}"
    if "refused" in report:
        return f"{start} not run: {report['refused']}"
    error = f"{report['error']:.1e}{'' if report['agrees'] else ' DISAGREES'}"
    if "us" not in report:
        return f"{start} {'-':>9} {'-':>7} {error:>8}"
    return (f"{start} {report['us']:9.1f} {report['gb_per_s']:7.0f} "
            f"{error:>8} {report['ratio']:6.2f}")


def missing_for_timing():
    """What a run with times lacks, or None."""
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    if not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} finds no CUDA GPU"
    return None


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("cases", nargs="*", type=case_of, help="FORMAT/BATCHxKV_LEN")
    parser.add_argument("--library", help="libkvforge.so; default: the build's")
    parser.add_argument("--cache", help="folder of compiled kernels")
    parser.add_argument("--strict", action="store_true", help="compile nothing")
    parser.add_argument("--only", nargs="*", default=list(RUNNERS),
                        choices=list(RUNNERS), help="beside kvforge")
    parser.add_argument("--repeats", type=int, default=31, help="21 or more")
    parser.add_argument("--json", help="file for the reports")
    parser.add_argument("--dry-run", action="store_true",
                        help="small cases on the CPU, agreement only")
    parser.add_argument("--list-specs", action="store_true",
                        help="for `kvforge prime`, then exit")
    options = parser.parse_args()
    cases = options.cases or [
        case_of(text) for text in (DRY_CASES if options.dry_run else CASES)]
    if options.list_specs:
        print("\n".join(sorted({spec for case in cases
                                for spec in specs_of(case[0], 4, "bf16")})))
        return 0
    if options.repeats < 21:
        parser.error(f"--repeats {options.repeats}: a median needs 21 or more")
    lacking = None if options.dry_run else missing_for_timing()
    if lacking:
        print(f"peers: {lacking}; times need PyTorch with CUDA and a GPU; "
              f"install them, or pass --dry-run")
        return 2
    try:
        tensors = kt.make_tensors(seed=1, gpu=not options.dry_run)
    except ImportError:
        print("skipped: neither PyTorch nor NumPy is installed; peers.py takes "
              "its memory from one of them")
        return 77

    library = kf.load(options.library)
    given = {"strict": 1} if options.strict else {}
    if options.cache:
        given["cache_roots"] = [options.cache]
    engine = kf.Engine(library, target=tensors.target, **given)
    q_heads, kv_heads = (8, 2) if options.dry_run else (32, 8)
    print(f"kvforge {library.version().decode()} on "
          f"{engine.facts().gpu.decode()}, {tensors.name}; {q_heads} q heads, "
          f"{kv_heads} kv heads, head_dim {DIM}, pages of {PAGE}")
    print(f"{'case':22} {'':16} {'us':>9} {'GB/s':>7} {'error':>8} {'ratio':>6}")
    names = ["kvforge"] + [name for name in options.only if name != "kvforge"]
    reports = []
    for case in cases:
        problem = Problem(library, engine, tensors, case, q_heads, kv_heads)
        for report in run_case(problem, names,
                               0 if options.dry_run else options.repeats):
            reports.append(report)
            print(line_of(report), flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(
            {"tensors": tensors.name, "gpu": engine.facts().gpu.decode(),
             "build_id": library.build_id().decode(), "reports": reports},
            indent=1))
    ran = [report for report in reports if "refused" not in report]
    wrong = [report for report in ran if not report["agrees"]]
    print(f"{len(ran)} run, {len(reports) - len(ran)} not run, {len(wrong)} "
          f"beyond {BOUND} of float64")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
