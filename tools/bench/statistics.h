// Medians and spreads of repeated timings.
#ifndef KVFORGE_TOOLS_BENCH_STATISTICS_H_
#define KVFORGE_TOOLS_BENCH_STATISTICS_H_

#include <vector>

namespace kvforge::bench {

struct Summary {
  double median = 0;
  // Distance of the quartiles divided by the median: 0.02 = half of the
  // samples lie within 2 %.
  double spread = 0;
  int samples = 0;

  bool operator==(const Summary&) const = default;
};

// Quantiles between two samples are interpolated linearly. No samples: zeros.
Summary Summarise(std::vector<double> samples);

struct Change {
  double ratio = 0;  // old time / new time: above 1 is faster
  double noise = 0;  // the two spreads added: a smaller change says nothing
  bool significant() const;
};

// Both medians above 0.
Change Compare(const Summary& before, const Summary& after);

}  // namespace kvforge::bench

#endif  // KVFORGE_TOOLS_BENCH_STATISTICS_H_
