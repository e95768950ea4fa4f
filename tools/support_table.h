// The table of README.md: what became of every kernel of every format on every
// path of GPUs, from records and the capability tables.
#ifndef KVFORGE_TOOLS_SUPPORT_TABLE_H_
#define KVFORGE_TOOLS_SUPPORT_TABLE_H_

#include <string>
#include <vector>

#include "runtime/cache/disk_cache.h"
#include "tools/support_record.h"

namespace kvforge {

// The kernels for GPUs that a cache holds, as compiled.
SupportRecord CompiledIn(const DiskCache& cache);

// Markdown. A cell is "executed" or "compiled" if a record says so, "refused"
// with the reason if no kernel is generated, else "no record".
std::string SupportTable(const std::vector<SupportRecord>& records);

}  // namespace kvforge

#endif  // KVFORGE_TOOLS_SUPPORT_TABLE_H_
