// What a run of `kvforge bench` found: a value that round-trips through JSON,
// prints as a table and compares with an earlier one.
#ifndef KVFORGE_TOOLS_BENCH_REPORT_H_
#define KVFORGE_TOOLS_BENCH_REPORT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/bench/statistics.h"

namespace kvforge::bench {

// One read of so many bytes by one launch of the streaming kernel.
struct StreamPoint {
  int64_t bytes = 0;
  double gb_per_s = 0;  // 1e9 bytes
};

struct Ceilings {
  double read_gb_per_s = 0;    // streaming, 2 GiB, 16-byte loads
  double copy_gb_per_s = 0;    // device to device: bytes read + bytes written
  double mma_tflop_per_s = 0;  // f16 mma.sync with f32 sums
  std::vector<StreamPoint> stream;
  std::string missing;  // why a figure above is 0; empty if none is
};

struct CaseResult {
  std::string name;
  std::string error;  // why it was not measured; the rest is empty then
  // Microseconds: single launches between two events each; launches in a row in
  // one graph, divided by their number. Other kinds of case: runners.h.
  Summary one;
  Summary row;
  int64_t bytes = 0;  // counts.h
  double flops = 0;
  // max |o - ref| / max |ref| over the sampled rows; store: 0 if every sampled
  // row is exact, else the part that is not. Negative: not checked.
  double accuracy = -1;
  int registers = 0;  // a thread
  int shared_bytes = 0;
  int spill_bytes = 0;
  std::string detail;  // "splits 4"

  double row_gb_per_s() const;
  double row_tflop_per_s() const;
  bool operator==(const CaseResult&) const = default;
};

struct Report {
  std::string gpu;              // "NVIDIA H200"; empty if no case needed one
  int driver_cuda_version = 0;  // 13000 for CUDA 13.0
  std::string measured_at;      // UTC
  Ceilings ceilings;
  std::vector<CaseResult> results;
};

std::string ToJson(const Report& report);
// kInvalidArgument, naming the part, for text that ToJson did not write.
absl::StatusOr<Report> ReportFromJson(absl::string_view text);

// A case's rate as a part of the ceiling it is held to: of copy for store, of
// mma.sync for extend, of read for the others. 0 where either is unknown.
double PartOfCeiling(const Ceilings& ceilings, const CaseResult& result);

// Ceilings, a line a case, and how each skewed case stands to the even one.
std::string ToTable(const Report& report);

// A line for each case that both have; what only one has is named.
std::string CompareReports(const Report& before, const Report& after);

}  // namespace kvforge::bench

#endif  // KVFORGE_TOOLS_BENCH_REPORT_H_
