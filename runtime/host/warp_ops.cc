#include "runtime/host/warp_ops.h"

#include <cstring>

#include "runtime/host/mma.h"

namespace kvforge {
namespace {

// Rows of 8 elements of 16 bits, as pairs, to the pairs of the transpose that
// one lane holds: row lane / 4, pair lane % 4.
uint32_t TransposedPair(const uint16_t (&matrix)[8][8], int lane) {
  const int row = lane / 4;
  const int pair = lane % 4;
  return matrix[2 * pair][row] |
         static_cast<uint32_t>(matrix[2 * pair + 1][row]) << 16;
}

}  // namespace

const char* CollectiveName(HostCollective op) {
  switch (op) {
    case kWarpSync:
      return "WarpSync";
    case kShuffleXor:
      return "ShuffleXor";
    case kShuffleFrom:
      return "ShuffleFrom";
    case kWarpAny:
      return "WarpAny";
    case kWarpAll:
      return "WarpAll";
    case kMmaF16:
      return "MmaF16";
    case kMmaBf16:
      return "MmaBf16";
    case kLdMatrix4:
      return "LdMatrix4";
    case kLdMatrix4Trans:
      return "LdMatrix4Trans";
    case kMoveMatrix:
      return "MoveMatrix";
    case kWgmma:
      return "Wgmma";
    case kWgmmaBegin:
      return "WgmmaBegin";
    case kWgmmaCommit:
      return "WgmmaCommit";
    case kWgmmaWait:
      return "WgmmaWait";
  }
  return "an unknown warp operation";
}

void RunRegisterOp(HostCollective op, const LaneOperands& operands) {
  switch (op) {
    case kShuffleXor:
    case kShuffleFrom: {
      uint32_t values[32];
      for (int lane = 0; lane < 32; ++lane) values[lane] = operands[lane][0];
      for (int lane = 0; lane < 32; ++lane) {
        const uint32_t argument = operands[lane][1];
        const uint32_t source = op == kShuffleXor ? lane ^ argument : argument;
        operands[lane][0] = values[source % 32];
      }
      return;
    }
    case kWarpAny:
    case kWarpAll: {
      uint32_t any = 0;
      uint32_t all = 1;
      for (uint32_t* words : operands) {
        any |= words[0];
        all &= words[0];
      }
      for (uint32_t* words : operands) words[0] = op == kWarpAny ? any : all;
      return;
    }
    case kMmaF16:
      return WarpMma(MmaElement::kF16, operands);
    case kMmaBf16:
      return WarpMma(MmaElement::kBf16, operands);
    case kMoveMatrix: {
      uint16_t matrix[8][8];
      for (int lane = 0; lane < 32; ++lane) {
        std::memcpy(&matrix[lane / 4][lane % 4 * 2], operands[lane], 4);
      }
      for (int lane = 0; lane < 32; ++lane) {
        operands[lane][0] = TransposedPair(matrix, lane);
      }
      return;
    }
    case kWarpSync:
    case kLdMatrix4:
    case kLdMatrix4Trans:
    case kWgmma:
    case kWgmmaBegin:
    case kWgmmaCommit:
    case kWgmmaWait:
      return;
  }
}

void RunLdMatrix(HostCollective op, const unsigned char* const (&rows)[32],
                 const LaneOperands& operands) {
  for (int m = 0; m < 4; ++m) {
    uint16_t matrix[8][8];
    for (int row = 0; row < 8; ++row) {
      std::memcpy(matrix[row], rows[m * 8 + row], 16);
    }
    for (int lane = 0; lane < 32; ++lane) {
      uint32_t& result = operands[lane][m];
      if (op == kLdMatrix4Trans) {
        result = TransposedPair(matrix, lane);
      } else {
        std::memcpy(&result, &matrix[lane / 4][lane % 4 * 2], 4);
      }
    }
  }
}

}  // namespace kvforge
