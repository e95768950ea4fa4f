// What the operations of arch/host_thread.h that a whole warp takes part in
// compute, once all lanes have come. `operands` are the lanes' words.
#ifndef KVFORGE_RUNTIME_HOST_WARP_OPS_H_
#define KVFORGE_RUNTIME_HOST_WARP_OPS_H_

#include <cstdint>

#include "arch/host_thread.h"

namespace kvforge {

using LaneOperands = uint32_t* [32];

// Name as docs/architecture.md spells it: "ShuffleXor".
const char* CollectiveName(HostCollective op);

// Every operation on the lanes' registers alone.
void RunRegisterOp(HostCollective op, const LaneOperands& operands);

// kLdMatrix4 and kLdMatrix4Trans; rows[lane] are the 16 bytes at its address.
void RunLdMatrix(HostCollective op, const unsigned char* const (&rows)[32],
                 const LaneOperands& operands);

}  // namespace kvforge

#endif  // KVFORGE_RUNTIME_HOST_WARP_OPS_H_
