// The arch functions of the machine this text is compiled for. The same text
// goes to NVRTC and to Clang; only this file tells them apart.
#ifndef KVFORGE_TEMPLATES_ARCH_SELECT_CUH_
#define KVFORGE_TEMPLATES_ARCH_SELECT_CUH_

#if defined(KVFORGE_HOST)
#include "arch/host.cuh"
#elif __CUDA_ARCH__ >= 1000
#include "arch/sm100.cuh"
#elif __CUDA_ARCH__ >= 890
#include "arch/sm89.cuh"
#else
#include "arch/sm80.cuh"
#endif

#if !defined(KVFORGE_HOST) && __CUDA_ARCH__ >= 900
#include "arch/sm90.cuh"
#else
#include "arch/ordered_grids.cuh"
#endif

#if !defined(KVFORGE_HOST) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "arch/sm90a.cuh"
#endif

#endif  // KVFORGE_TEMPLATES_ARCH_SELECT_CUH_
