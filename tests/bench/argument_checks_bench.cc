// What the checks of a run call cost: processor time of run calls whose
// launches do nothing. One line a spec; gates nothing.
//
//   argument_checks_bench [CALLS [SPEC ...]]
//   argument_checks_bench --cuda [CALLS [SPEC ...]]
//
// --cuda: over the driver, tensor maps and contexts included. Of use with the
// stand-in alone (LD_LIBRARY_PATH=build/tests/stand_in/lib), whose launches do
// nothing: addresses lead nowhere.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/kernels/run_calls.h"

namespace {

double ThreadNanoseconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 +
         static_cast<double>(now.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kRepeats = 9;
  const bool cuda = argc > 1 && std::string(argv[1]) == "--cuda";
  if (cuda) {
    --argc;
    ++argv;
  }
  const int calls = argc > 1 ? std::atoi(argv[1]) : 200'000;
  std::vector<std::string> specs(argv + std::min(argc, 2), argv + argc);
  if (specs.empty()) {
    specs = {"store/e4m3_row/d128/g1/page16/bf16",
             "store/nvfp4_row/d128/g1/page16/bf16",
             "decode/bf16/d128/g4/page16/bf16",
             "decode/e4m3_row/d128/g4/page16/bf16",
             "decode/nvfp4_row/d128/g4/page16/bf16",
             "extend/e4m3_row/d128/g4/page16/bf16",
             "gather/e4m3_row/d128/g1/page16/bf16",
             "merge/d128/bf16"};
  }
  const auto engine =
      cuda ? kvforge::DriverEngine() : kvforge::RecordingEngine();
  for (const kvforge::RunCall& call : kvforge::MakeRunCalls(*engine, specs)) {
    std::vector<double> ns;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      const double start = ThreadNanoseconds();
      for (int i = 0; i < calls; ++i) {
        if (const absl::Status status = call.run(); !status.ok()) {
          std::fprintf(stderr, "%s: %s\n", call.spec.c_str(),
                       status.ToString().c_str());
          return 1;
        }
      }
      ns.push_back((ThreadNanoseconds() - start) / calls);
    }
    std::sort(ns.begin(), ns.end());
    std::printf("%-40s %7.1f ns a call (fastest %.1f)\n", call.spec.c_str(),
                ns[kRepeats / 2], ns[0]);
  }
  return 0;
}
