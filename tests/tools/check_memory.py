"""Priming five times as many kernels in one process takes no more memory.

Usage: check_memory.py KVFORGE FOLDER
"""
import os
import pathlib
import shutil
import subprocess
import sys

# A leak of half a MiB a kernel shows.
GROWTH_KIB = 16 << 10

kvforge, folder = sys.argv[1], pathlib.Path(sys.argv[2])
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)


def peak_kib(number):
    """Of a process that primes the first `number` SPECs on one thread."""
    specs = folder / f"{number}.txt"
    specs.write_text("".join(f"store/bf16/d64/g1/page{page}/f32\n"
                             for page in range(1, number + 1)))
    process = subprocess.Popen(
        [kvforge, "prime", str(specs), "--gpus", "host-sm_80", "-j", "1",
         "--cache", str(folder / f"cache-{number}")], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, process.returncode
    return usage.ru_maxrss


few, many = peak_kib(10), peak_kib(50)
print(f"peak memory: {few} KiB for 10 kernels, {many} KiB for 50")
sys.exit(many - few > GROWTH_KIB)
