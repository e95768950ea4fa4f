#include "runtime/cuda/module.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

// CUfunction_attribute.
constexpr int kSharedSizeBytes = 1;
constexpr int kMaxDynamicSharedSizeBytes = 8;

constexpr int kMaxBlockThreads = 1024;

// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, and the driver from
// which on a graph may hold such launches.
constexpr int kProgrammaticSerialization = 6;
constexpr int kProgrammaticInGraphs = 12030;

// A cubin runs on its own GPU and on later ones of the same generation.
bool RunsOn(int built_for, int compute_capability) {
  return built_for / 10 == compute_capability / 10 &&
         built_for <= compute_capability;
}

std::string VersionText(int version, int major_unit) {
  return absl::StrCat(version / major_unit, ".",
                      version % major_unit * 10 / major_unit);
}

absl::Status LoadError(const Device& device, const CubinFacts& facts,
                       absl::string_view kernel, const absl::Status& status) {
  const std::string message = absl::StrCat(
      "GPU ", device.ordinal(), " (", device.name(), ", sm_",
      device.compute_capability(), ") with a driver of CUDA ",
      VersionText(device.api().version, 1000), " does not load ", kernel,
      ", built for sm_", facts.compute_capability, " by CUDA ",
      VersionText(facts.toolkit_version, 10), ": ", status.message());
  // Drivers call a cubin of a later toolkit an invalid image.
  if (facts.toolkit_version > device.api().version / 100) {
    return absl::FailedPreconditionError(absl::StrCat(
        message,
        "; the cubin is newer than the driver; update the driver or compile "
        "with an NVRTC of its version"));
  }
  if (absl::IsFailedPrecondition(status)) {
    return absl::FailedPreconditionError(
        absl::StrCat(message, "; compile it for exactly this GPU"));
  }
  return absl::Status(status.code(), message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Module>> Module::Load(DevicePtr device,
                                                     absl::string_view cubin,
                                                     absl::string_view kernel,
                                                     int dynamic_shared_bytes) {
  ASSIGN_OR_RETURN(const CubinFacts facts, ReadCubinFacts(cubin, kernel));
  if (!RunsOn(facts.compute_capability, device->compute_capability())) {
    return absl::FailedPreconditionError(absl::StrCat(
        kernel, " is built for sm_", facts.compute_capability, ", but GPU ",
        device->ordinal(), " (", device->name(), ") is sm_",
        device->compute_capability(),
        "; a cubin runs on GPUs of its own generation; compile it for this "
        "one"));
  }
  if (dynamic_shared_bytes < 0 ||
      dynamic_shared_bytes > device->limits().shared_bytes_opt_in) {
    return absl::ResourceExhaustedError(absl::StrCat(
        kernel, " wants ", dynamic_shared_bytes,
        " bytes of shared memory a block; GPU ", device->ordinal(), " (",
        device->name(), ") has ", device->limits().shared_bytes_opt_in,
        "; choose a smaller tile"));
  }
  std::unique_ptr<Module> module(new Module(device));
  module->kernel_ = std::string(kernel);
  module->facts_ = facts;
  module->max_dynamic_shared_bytes_ = dynamic_shared_bytes;
  ASSIGN_OR_RETURN(module->shared_bytes_,
                   ReadOptionalConstantInt(cubin, "kvforge_shared_bytes"));
  ASSIGN_OR_RETURN(module->block_threads_,
                   ReadOptionalConstantInt(cubin, "kvforge_block_threads"));
  const DriverApi& api = device->api();
  ASSIGN_OR_RETURN(const int overlaps,
                   ReadOptionalConstantInt(cubin, "kvforge_overlaps_launches"));
  module->overlaps_launches_ =
      overlaps > 0 && api.version >= kProgrammaticInGraphs;

  const ScopedContext context(*device);
  RETURN_IF_ERROR(context.status());
  if (const int result =
          api.LibraryLoadData(&module->library_, cubin.data(), nullptr, nullptr,
                              0, nullptr, nullptr, 0);
      result != 0) {
    return LoadError(*device, facts, kernel,
                     api.Check(result, "cuLibraryLoadData"));
  }
  CuKernel handle = nullptr;
  RETURN_IF_ERROR(api.Check(
      api.LibraryGetKernel(&handle, module->library_, module->kernel_.c_str()),
      "cuLibraryGetKernel"));
  // These three finish a lazy load, on this device.
  if (const int result = api.KernelGetFunction(&module->function_, handle);
      result != 0) {
    return LoadError(*device, facts, kernel,
                     api.Check(result, "cuKernelGetFunction"));
  }
  int static_shared_bytes = 0;
  RETURN_IF_ERROR(
      api.Check(api.FuncGetAttribute(&static_shared_bytes, kSharedSizeBytes,
                                     module->function_),
                "cuFuncGetAttribute"));
  if (static_shared_bytes + dynamic_shared_bytes >
      device->limits().shared_bytes_opt_in) {
    return absl::ResourceExhaustedError(absl::StrCat(
        kernel, " wants ", static_shared_bytes, " static and ",
        dynamic_shared_bytes, " dynamic bytes of shared memory a block; GPU ",
        device->ordinal(), " has ", device->limits().shared_bytes_opt_in,
        "; choose a smaller tile"));
  }
  RETURN_IF_ERROR(api.Check(
      api.FuncSetAttribute(module->function_, kMaxDynamicSharedSizeBytes,
                           dynamic_shared_bytes),
      absl::StrCat("cannot allow ", kernel, " ", dynamic_shared_bytes,
                   " bytes of shared memory")));
  return module;
}

Module::~Module() {
  if (library_ == nullptr) return;
  const ScopedContext context(*device_);
  if (context.status().ok()) device_->api().LibraryUnload(library_);
}

absl::Status Module::Launch(const LaunchShape& shape, CuStream stream,
                            const void* args, size_t args_bytes) const {
  if (args_bytes != static_cast<size_t>(facts_.param_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        kernel_, " takes ", facts_.param_bytes, " bytes of arguments, not ",
        args_bytes,
        "; the struct on the host differs from the one it was compiled with; "
        "compile the kernel again"));
  }
  if (shape.grid_blocks < 0 ||
      shape.grid_blocks > std::numeric_limits<int32_t>::max() ||
      shape.block_threads < 1 || shape.block_threads > kMaxBlockThreads ||
      shape.dynamic_shared_bytes < 0 ||
      shape.dynamic_shared_bytes > max_dynamic_shared_bytes_) {
    return absl::InvalidArgumentError(absl::StrCat(
        kernel_, ": a launch of ", shape.grid_blocks, " blocks, ",
        shape.block_threads, " threads and ", shape.dynamic_shared_bytes,
        " bytes of shared memory is out of range; at most ",
        std::numeric_limits<int32_t>::max(), " blocks, 1 to ", kMaxBlockThreads,
        " threads and the ", max_dynamic_shared_bytes_,
        " bytes it was loaded with; split the work or load it with more"));
  }
  if (shape.grid_blocks == 0) return absl::OkStatus();
  const ScopedContext context(*device_);
  RETURN_IF_ERROR(context.status());
  void* parameters[] = {const_cast<void*>(args)};
  const DriverApi& api = device_->api();
  CuLaunchAttribute overlap = {kProgrammaticSerialization, 0, {1}};
  const CuLaunchConfig config = {
      {static_cast<unsigned>(shape.grid_blocks), 1, 1},
      {static_cast<unsigned>(shape.block_threads), 1, 1},
      static_cast<unsigned>(shape.dynamic_shared_bytes),
      stream,
      &overlap,
      overlaps_launches_ ? 1u : 0u};
  const int result =
      api.LaunchKernelEx(&config, function_, parameters, nullptr);
  if (result == 0) return absl::OkStatus();
  return api.Check(result, absl::StrCat("cannot launch ", kernel_, " with ",
                                        shape.grid_blocks, " blocks of ",
                                        shape.block_threads, " threads"));
}

absl::StatusOr<int> Module::BlocksPerSm(int block_threads,
                                        int dynamic_shared_bytes) const {
  const ScopedContext context(*device_);
  RETURN_IF_ERROR(context.status());
  int blocks = 0;
  RETURN_IF_ERROR(device_->api().Check(
      device_->api().OccupancyMaxActiveBlocks(&blocks, function_, block_threads,
                                              dynamic_shared_bytes),
      "cuOccupancyMaxActiveBlocksPerMultiprocessor"));
  return blocks;
}

}  // namespace kvforge
