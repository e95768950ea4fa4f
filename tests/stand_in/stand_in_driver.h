// A libcuda.so.1 for machines without a GPU: devices that hold memory, load
// anything and launch nothing, but that know which context, stream, function
// and buffer belong together, and fail where a test says so. Processes find it
// by LD_LIBRARY_PATH.
#ifndef KVFORGE_TESTS_STAND_IN_STAND_IN_DRIVER_H_
#define KVFORGE_TESTS_STAND_IN_STAND_IN_DRIVER_H_

namespace kvforge {

inline constexpr int kStandInDevices = 2;

// Set by tests while no call is under way.
struct StandInSettings {
  // The call of this exported name, or of any where it is "*", returns
  // `result` once `skipped` such calls have gone by; null: none does.
  const char* failing = nullptr;
  int result = 0;
  int skipped = 0;
};

// Of all calls so far. A call that fails counts, but does nothing.
struct StandInCounts {
  long long calls = 0;
  long long launches[kStandInDevices] = {};
  long long encoded_maps = 0;
  // That were made and not freed.
  long long buffers = 0, libraries = 0, streams = 0, events = 0, graphs = 0;
  long long contexts = 0;  // pushed, on all threads
  // Handles of another device, addresses outside of buffers, and the like.
  long long misuses = 0;
};

}  // namespace kvforge

// Of the process's stand-in, by dlsym.
using StandInSettingsFunction = kvforge::StandInSettings*();
using StandInCountsFunction = kvforge::StandInCounts();

#endif  // KVFORGE_TESTS_STAND_IN_STAND_IN_DRIVER_H_
