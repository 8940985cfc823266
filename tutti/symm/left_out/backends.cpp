#include "tutti/job/left_out/left_out.h"
#include "tutti/symm/backends.h"

namespace tutti::comm::symm {
namespace {

// Its name stays legal; open() says that it is not here.
class LeftOutBackend final : public Backend {
 public:
  explicit LeftOutBackend(BackendTraits traits) : traits_(traits) {}
  const BackendTraits& traits() const override { return traits_; }
  void open() override { refuse(); }
  std::shared_ptr<Block> allocate(int64_t, Device) override { refuse(); }
  std::string ticket(const Block&) override { refuse(); }
  std::vector<std::shared_ptr<Block>> exchange(const Meeting&, const std::shared_ptr<Block>&) override { refuse(); }

 private:
  [[noreturn]] void refuse() const { throw_left_out(fmt::format("symmetric memory backend {}", traits_.name)); }
  BackendTraits traits_;
};

std::unique_ptr<Backend> gpu_backend(const char* name) { return std::make_unique<LeftOutBackend>(BackendTraits{.name = name, .device = DeviceKind::cuda}); }

}  // namespace

std::unique_ptr<Backend> make_cuda_backend() { return gpu_backend("cuda"); }
std::unique_ptr<Backend> make_native_backend() { return std::make_unique<LeftOutBackend>(BackendTraits{.name = "native"}); }
std::unique_ptr<Backend> make_nccl_backend() { return gpu_backend("nccl"); }
std::unique_ptr<Backend> make_nvshmem_backend() { return gpu_backend("nvshmem"); }

const char* usual_backend_name() { return "threads"; }

}  // namespace tutti::comm::symm
