// cuda: virtual memory of the CUDA driver, passed between the processes of a host as descriptors. Signals lie in the
// host's memory; barrier and signals wait for the device first, so what a kernel wrote is there when a peer is told.
#include "tutti/job/host/fd_passing.h"
#include "tutti/symm/backend.h"
#include "tutti/symm/cuda_driver.h"

namespace tutti::comm::symm {
namespace {

class CudaBlock final : public Block {
 public:
  CudaBlock(CudaDriver& driver, int device, CudaDriver::Memory memory, int64_t bytes)
      : driver_(driver), device_(device), memory_(memory) {
    nbytes = bytes;
    const size_t size = static_cast<size_t>(bytes);
    try {
      driver_.check(driver_.reserve(&address_, size, 0, 0, 0), "cuMemAddressReserve");
      driver_.check(driver_.map(address_, size, 0, memory_, 0), "cuMemMap");
      mapped_ = true;
      const CudaAccess access{.location = {.type = 1, .id = device}};
      driver_.check(driver_.set_access(address_, size, &access, 1), "cuMemSetAccess");
    } catch (...) {
      drop();
      throw;
    }
    base = reinterpret_cast<std::byte*>(address_);
  }

  // Waits for the device: a kernel may still use the memory. Failures cannot be told to anybody here, and a driver that
  // is shutting down refuses all of this.
  ~CudaBlock() override {
    try {
      const CudaDriver::Scope scope(driver_, device_);
      driver_.synchronize();
      drop();
    } catch (const Error&) {
    }
  }

  CudaDriver::Memory memory() const { return memory_; }
  int device() const { return device_; }

 private:
  void drop() {
    const size_t size = static_cast<size_t>(nbytes);
    if (mapped_) driver_.unmap(address_, size);
    if (address_ != 0) driver_.free_address(address_, size);
    driver_.release(memory_);
  }

  CudaDriver& driver_;
  int device_;
  CudaDriver::Memory memory_;
  CudaDriver::Address address_ = 0;
  bool mapped_ = false;
};

class CudaBackend final : public Backend {
 public:
  const BackendTraits& traits() const override {
    static const BackendTraits traits{.name = "cuda",
                                      .device = DeviceKind::cuda,
                                      .host_access = false,
                                      .contiguous_view = false,
                                      .needs_library = true};
    return traits;
  }

  void open() override { cuda_driver().open(); }

  std::shared_ptr<Block> allocate(int64_t nbytes, Device device) override {
    CudaDriver& driver = cuda_driver();
    const CudaDriver::Scope scope(driver, device.index);
    const CudaAllocationProperties properties{.location = {.type = 1, .id = device.index}};
    size_t unit = 0;
    driver.check(driver.granularity(&unit, &properties, 1), "cuMemGetAllocationGranularity");
    const int64_t rounded =
        (nbytes + static_cast<int64_t>(unit) - 1) / static_cast<int64_t>(unit) * static_cast<int64_t>(unit);
    CudaDriver::Memory memory = 0;
    driver.check(driver.create(&memory, static_cast<size_t>(rounded), &properties, 0), "cuMemCreate");
    auto block = std::make_shared<CudaBlock>(driver, device.index, memory, rounded);
    driver.check(driver.memset(reinterpret_cast<CudaDriver::Address>(block->base), 0, static_cast<size_t>(rounded)),
                 "cuMemsetD8");
    return block;
  }

  std::string ticket(const Block& block) override { return std::to_string(block.nbytes); }

  std::vector<std::shared_ptr<Block>> exchange(const Meeting& meeting, const std::shared_ptr<Block>& own) override {
    CudaDriver& driver = cuda_driver();
    const auto& block = static_cast<const CudaBlock&>(*own);
    const CudaDriver::Scope scope(driver, block.device());
    int exported = -1;
    driver.check(driver.export_handle(&exported, block.memory(), 1, 0), "cuMemExportToShareableHandle");
    const UniqueFd fd(exported);
    const std::vector<UniqueFd> fds =
        all_gather_fds(*meeting.group.store(), meeting.key + "/cuda", meeting.group.rank(), meeting.group.size(),
                       fd.get(), meeting.deadline, meeting.look_around);
    std::vector<std::shared_ptr<Block>> blocks;
    for (size_t r = 0; r < fds.size(); ++r) {
      if (static_cast<int>(r) == meeting.group.rank()) {
        blocks.push_back(own);
        continue;
      }
      TUTTI_CHECK(meeting.peers[r].ticket == ticket(*own),
                  "backend cuda: rank {} has a block of {} bytes, this rank {}", r, meeting.peers[r].ticket,
                  own->nbytes);
      CudaDriver::Memory memory = 0;
      void* handle = reinterpret_cast<void*>(static_cast<intptr_t>(fds[r].get()));
      driver.check(driver.import_handle(&memory, handle, 1), "cuMemImportFromShareableHandle");
      blocks.push_back(std::make_shared<CudaBlock>(driver, block.device(), memory, own->nbytes));
    }
    return blocks;
  }

  void synchronize(Device device) override {
    CudaDriver& driver = cuda_driver();
    const CudaDriver::Scope scope(driver, device.index);
    driver.check(driver.synchronize(), "cuCtxSynchronize");
  }

  void copy(void* target, const void* source, int64_t nbytes, Device device) override {
    CudaDriver& driver = cuda_driver();
    const CudaDriver::Scope scope(driver, device.index);
    driver.check(driver.copy(reinterpret_cast<CudaDriver::Address>(target),
                             reinterpret_cast<CudaDriver::Address>(source), static_cast<size_t>(nbytes)),
                 "cuMemcpy");
    driver.check(driver.synchronize(), "cuCtxSynchronize");
  }
};

}  // namespace

TUTTI_SYMM_BACKEND(cuda, CudaBackend);

}  // namespace tutti::comm::symm
