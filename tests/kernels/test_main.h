// Between a test binary's main and the engine its tests share.
#ifndef KVFORGE_TESTS_KERNELS_TEST_MAIN_H_
#define KVFORGE_TESTS_KERNELS_TEST_MAIN_H_

#include "absl/status/status.h"
#include "kernels/engine.h"
#include "tests/kernels/test_engine.h"
#include "tools/support_record.h"

namespace kvforge {

// Before any test runs; errors are those of Engine::Create.
absl::Status OpenTestEngine(TestFlags flags, EngineOptions options);

// What RecordExecuted was told so far.
SupportRecord& ExecutedRecord();

}  // namespace kvforge

#endif  // KVFORGE_TESTS_KERNELS_TEST_MAIN_H_
