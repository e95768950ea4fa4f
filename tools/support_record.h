// Records of which kernels were compiled or executed, by format and GPU: what
// the table of README.md is made from.
//
//   {"state": "executed", "on": "NVIDIA H200", "gpus":
//     {"sm_90": {"decode": ["bf16", "e4m3_row"], "merge": ["-"]}}}
//
// A kernel of mixed formats counts for both; merge works on f32 partial results
// of any format, "-".
#ifndef KVFORGE_TOOLS_SUPPORT_RECORD_H_
#define KVFORGE_TOOLS_SUPPORT_RECORD_H_

#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/spec/kernel_spec.h"

namespace kvforge {

struct SupportRecord {
  std::string state;  // "executed" or "compiled"
  std::string on;     // the device, or the compiler
  // GPU ("sm_90", "host" for the CPU), kernel, formats.
  std::map<std::string, std::map<std::string, std::set<std::string>>> gpus;

  void Add(const std::string& gpu, KernelKind kernel, const KvFormat* k,
           const KvFormat* v);
};

// Adds to what the file holds, if there is one: several runs make one record.
absl::Status UpdateSupportRecord(const std::string& path,
                                 const SupportRecord& record);
// kInvalidArgument with the path for a file that is not of the form.
absl::StatusOr<SupportRecord> ReadSupportRecord(const std::string& path);

}  // namespace kvforge

#endif  // KVFORGE_TOOLS_SUPPORT_RECORD_H_
