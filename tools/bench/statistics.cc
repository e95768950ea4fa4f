#include "tools/bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace kvforge::bench {
namespace {

double Quantile(const std::vector<double>& sorted, double part) {
  const double at = part * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] +
         (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

Summary Summarise(std::vector<double> samples) {
  Summary summary;
  if (samples.empty()) return summary;
  std::sort(samples.begin(), samples.end());
  summary.samples = static_cast<int>(samples.size());
  summary.median = Quantile(samples, 0.5);
  if (summary.median > 0) {
    summary.spread =
        (Quantile(samples, 0.75) - Quantile(samples, 0.25)) / summary.median;
  }
  return summary;
}

bool Change::significant() const { return std::fabs(ratio - 1) > noise; }

Change Compare(const Summary& before, const Summary& after) {
  return {before.median / after.median, before.spread + after.spread};
}

}  // namespace kvforge::bench
