#!/usr/bin/env python3
"""kvforge from PyTorch: quantizes K and V rows into an e4m3_row cache, attends
to them by decode and by extend, and compares with attention in float64.

On a GPU the tensors are CUDA tensors and kernels run on torch's stream; without
one, or without torch (NumPy), the CPU runs the GPU's text. No tensor is copied.
Exits 1 if an error is beyond --bound.
"""
import argparse
import sys

import kvforge_ctypes as kf
import kvforge_tensors as kt

PAGE, KV_HEADS, GROUP, DIM = 16, 2, 4, 128
KV_LENS = [100, 37]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", help="libkvforge.so; default: the build's")
    parser.add_argument("--cache", help="folder of compiled kernels")
    parser.add_argument("--strict", action="store_true", help="compile nothing")
    parser.add_argument("--cpu", action="store_true", help="even with a GPU")
    parser.add_argument("--bound", type=float, default=5e-3,
                        help="of max|o - ref| / max|ref|")
    options = parser.parse_args()
    try:
        tensors = kt.make_tensors(seed=1, gpu=not options.cpu)
    except ImportError:
        print("skipped: neither PyTorch nor NumPy is installed; this client "
              "takes its memory from one of them")
        return 77

    library = kf.load(options.library)
    given = {"strict": 1} if options.strict else {}
    if options.cache:
        given["cache_roots"] = [options.cache]
    engine = kf.Engine(library, target=tensors.target, **given)
    kind, shape = tensors.query_type, f"e4m3_row/d{DIM}"
    store = engine.prepare(f"store/{shape}/g1/page{PAGE}/{kind}")
    extend = engine.prepare(f"extend/{shape}/g{GROUP}/page{PAGE}/{kind}")
    decode = engine.prepare(f"decode/{shape}/g{GROUP}/page{PAGE}/{kind}")
    print(f"kvforge {library.version().decode()}, {tensors.name}, "
          f"{decode.facts().arch.decode()}: {decode.spec}")

    # Two sequences on the pages 6, 5, .. of one cache.
    pages = [-(-length // PAGE) for length in KV_LENS]
    cache = kt.Cache(library, tensors, "e4m3_row", DIM, KV_HEADS, PAGE,
                     sum(pages))
    free = list(range(sum(pages)))
    table = [[free.pop() for _ in range(count)] for count in pages]
    slots = [[table[b][t // PAGE] * PAGE + t % PAGE for t in range(length)]
             for b, length in enumerate(KV_LENS)]
    page_table = tensors.of(
        [row + [0] * (max(pages) - len(row)) for row in table], "i32")

    k, v = (tensors.normal((sum(KV_LENS), KV_HEADS, DIM), kind)
            for _ in range(2))
    all_slots = tensors.of(slots[0] + slots[1], "i64")
    store.run(cache.store_args(k, v, all_slots), tensors.stream())

    scale, failed = DIM**-0.5, False
    for kernel, q_lens in ((decode, [1, 1]), (extend, [20, 37])):
        q = tensors.normal((sum(q_lens), KV_HEADS * GROUP, DIM), kind)
        attention = kt.Attention(cache, q, q_lens, KV_LENS, page_table, scale)
        structs = [attention.args]
        if kernel is decode:
            grid = kt.DecodeLaunch(engine, decode, tensors, len(q_lens),
                                   KV_HEADS)
            structs.append(grid.launch)
        kernel.run(*structs, tensors.stream())
        tensors.synchronize()
        row = 0
        for b, count in enumerate(q_lens):
            rows = slice(row, row + count)
            row += count
            out, lse = kt.attention_float64(
                tensors, tensors.float64(q[rows]), cache.rows(0, slots[b]),
                cache.rows(1, slots[b]), scale)
            errors = (kt.relative_error(tensors, attention.out[rows], out),
                      kt.relative_error(tensors, attention.lse[rows], lse))
            good = max(errors) <= options.bound  # false for NaN
            failed |= not good
            print(f"{kernel.spec.split('/')[0]} sequence {b}: max|o - ref| / "
                  f"max|ref| {errors[0]:.1e}, lse {errors[1]:.1e}"
                  f"{'' if good else '  BEYOND ' + str(options.bound)}")

    # A row's codes are within half a step of e4m3, 2^-4 of a value.
    stored = cache.rows(0, slots[0])
    error = kt.relative_error(tensors, stored,
                              tensors.float64(k[:KV_LENS[0]]))
    failed |= not error <= 2**-4
    print(f"stored rows: max|row - source| / max|source| {error:.1e}")
    print("FAILED" if failed else "OK")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
