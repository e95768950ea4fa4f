// What the files of the stand-in share.
#ifndef KVFORGE_TESTS_STAND_IN_STAND_IN_STATE_H_
#define KVFORGE_TESTS_STAND_IN_STAND_IN_STATE_H_

#include <mutex>

#include "runtime/cuda/driver_api.h"
#include "tests/stand_in/stand_in_driver.h"

namespace kvforge {

// CUresult.
inline constexpr int kInvalidValue = 1;
inline constexpr int kOutOfMemory = 2;
inline constexpr int kInvalidDevice = 101;
inline constexpr int kInvalidContext = 201;
inline constexpr int kInvalidHandle = 400;
inline constexpr int kNotFound = 500;
inline constexpr int kIllegalAddress = 700;

extern StandInSettings stand_in_settings;
extern StandInCounts stand_in_counts;  // guarded by stand_in_mutex
extern std::mutex stand_in_mutex;

// Counts the call `name`; what it is to fail with, 0 if it is not.
int Enter(const char* name);
// Counts one of a caller's mistakes and returns `result`.
int Misuse(int result);
// The current context's device; -1 without one.
int CurrentDevice();
// 0 if a context is current and `stream` is of its device.
int CheckStream(CuStream stream);

template <class T>
T* Made(T* made, long long StandInCounts::*count) {
  std::lock_guard lock(stand_in_mutex);
  ++(stand_in_counts.*count);
  return made;
}
template <class T>
int Freed(T* handle, long long StandInCounts::*count) {
  delete handle;
  std::lock_guard lock(stand_in_mutex);
  --(stand_in_counts.*count);
  return 0;
}

}  // namespace kvforge

#define KVFORGE_EXPORT __attribute__((visibility("default")))
// A call that may be told to fail.
#define KVFORGE_CALL(name)                       \
  if (const int failed = Enter(#name); failed) { \
    return failed;                               \
  }

#endif  // KVFORGE_TESTS_STAND_IN_STAND_IN_STATE_H_
