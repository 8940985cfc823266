#include "tutti/comm/rank_group.h"

#include <cstring>

#include "tutti/comm/functional/arguments.h"
#include "tutti/comm/group_registry.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

class GroupOfRanks final : public deploy::RankGroup {
 public:
  explicit GroupOfRanks(std::shared_ptr<ProcessGroup> group)
      : group_(std::move(group)), name_(GroupRegistry::current().name_for(group_)) {}

  std::string name() const override { return name_; }
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }

  void start(const OpCall& call, std::span<const Tensor> outputs) override {
    const functional::GroupStandIn stands_in(call.attrs.as<functional::CallAttrs>().group.name, group_);
    call.op.kernel(call, outputs);
  }

  std::vector<std::string> all_gather(const std::string& text) override { return start_all_gather(text)(); }

  std::function<std::vector<std::string>()> start_all_gather(const std::string& text) override {
    const auto count = static_cast<int64_t>(text.size());
    const Tensor mine = Tensor::empty({count}, DType::u8), all = Tensor::empty({count * size()}, DType::u8);
    std::memcpy(mine.raw_data(), text.data(), text.size());
    const Work work = group_->all_gather_single(all, mine, {.async = true});
    return [work, mine, all, count, ranks = size()] {
      work.wait();
      std::vector<std::string> texts;
      for (int r = 0; r < ranks; ++r) texts.emplace_back(static_cast<const char*>(all.raw_data()) + r * count, count);
      return texts;
    };
  }

 private:
  const std::shared_ptr<ProcessGroup> group_;
  const std::string name_;
};

}  // namespace

std::shared_ptr<deploy::RankGroup> rank_group(std::shared_ptr<ProcessGroup> group) {
  TUTTI_CHECK(group != nullptr, "rank_group: the process group is null; this rank may not be a member of it");
  return std::make_shared<GroupOfRanks>(std::move(group));
}

}  // namespace tutti::comm
