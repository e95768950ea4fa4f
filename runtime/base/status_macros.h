// RETURN_IF_ERROR and ASSIGN_OR_RETURN for absl::Status; the only macros that
// host code defines.
#ifndef KVFORGE_RUNTIME_BASE_STATUS_MACROS_H_
#define KVFORGE_RUNTIME_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns the status of `expression` from the enclosing function if not OK.
#define RETURN_IF_ERROR(expression)                                           \
  do {                                                                        \
    if (absl::Status kvforge_status_ = (expression); !kvforge_status_.ok()) { \
      return kvforge_status_;                                                 \
    }                                                                         \
  } while (false)

#define KVFORGE_CONCAT_INNER_(a, b) a##b
#define KVFORGE_CONCAT_(a, b) KVFORGE_CONCAT_INNER_(a, b)
#define KVFORGE_ASSIGN_OR_RETURN_(temporary, lhs, expression) \
  auto temporary = (expression);                              \
  if (!temporary.ok()) return std::move(temporary).status();  \
  lhs = std::move(temporary).value()

// ASSIGN_OR_RETURN(const int bytes, TileBytes(tile)): declares or assigns the
// left side, or returns the error. A type with a comma needs an alias.
#define ASSIGN_OR_RETURN(lhs, expression)                                \
  KVFORGE_ASSIGN_OR_RETURN_(KVFORGE_CONCAT_(kvforge_or_, __LINE__), lhs, \
                            expression)

#endif  // KVFORGE_RUNTIME_BASE_STATUS_MACROS_H_
