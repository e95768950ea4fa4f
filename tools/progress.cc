#include "tools/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace kvforge {
namespace {

constexpr int kBarCells = 30;

}  // namespace

Progress::Progress(size_t total)
    : total_(std::max<size_t>(total, 1)), shown_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void Progress::Step(size_t done, const std::string& what) {
  if (!shown_) return;
  const int cells = static_cast<int>(done * kBarCells / total_);
  std::fprintf(
      stderr, "\r\033[K[%s%s] %zu/%zu %s", std::string(cells, '#').c_str(),
      std::string(kBarCells - cells, '.').c_str(), done, total_, what.c_str());
}

}  // namespace kvforge
