// A report as a picture: the roofline, and bandwidth against size.
#ifndef KVFORGE_TOOLS_BENCH_PICTURE_H_
#define KVFORGE_TOOLS_BENCH_PICTURE_H_

#include <string>

#include "tools/bench/report.h"

namespace kvforge::bench {

// An SVG document. Left: TFLOP/s against flops a byte, under the read and
// mma.sync ceilings. Right: GB/s against bytes, beside the curve of one
// streaming launch and under the read and copy ceilings, without extend. A
// point is a case's
// launches in a row, coloured by format; its tooltip names it.
std::string ToSvg(const Report& report);

}  // namespace kvforge::bench

#endif  // KVFORGE_TOOLS_BENCH_PICTURE_H_
