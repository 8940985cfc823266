// The C interface over RankGroup.
#include "tutti/deploy/tutti_collectives.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tutti/deploy/c_interface.h"
#include "tutti/deploy/collective_op.h"
#include "tutti/deploy/rank_group.h"
#include "tutti/tensor/host_read.h"

namespace c_interface = tutti::deploy::c_interface;
using tutti::DType;
using tutti::OpCall;
using tutti::Tensor;
using tutti::deploy::CallAttrs;
using tutti::deploy::RankGroup;

namespace {

// The ops of which the interface has a collective.
struct Known {
  std::string_view op;
  tutti_collective collective;
};
constexpr Known kKnown[] = {{"all_reduce", TUTTI_ALL_REDUCE},
                            {"all_reduce_extremum", TUTTI_ALL_REDUCE},
                            {"broadcast", TUTTI_BROADCAST},
                            {"all_gather_single", TUTTI_ALL_GATHER_SINGLE},
                            {"all_to_all_single", TUTTI_ALL_TO_ALL_SINGLE},
                            {"reduce_scatter_single", TUTTI_REDUCE_SCATTER_SINGLE}};

class GroupInC final : public RankGroup {
 public:
  explicit GroupInC(const tutti_collectives& table) : table_(table) {}
  int rank() const override { return table_.rank; }
  int size() const override { return table_.ranks; }

  void start(const OpCall& call, std::span<const Tensor> outputs) override {
    const std::string_view op = call.op.name;
    const auto* known = std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& k) { return k.op == op; });
    TUTTI_CHECK(known != std::end(kKnown),
                "{}: groups in C have no such collective; run the package with Tutti's own groups (deploy::Package)",
                op);
    const auto& attrs = call.attrs.as<CallAttrs>();
    const Tensor input = to_contiguous(call[0]);
    run(call.op.name, known->collective, attrs, input, outputs[0]);
  }

  std::vector<std::string> all_gather(const std::string& text) override {
    const auto count = static_cast<int64_t>(text.size());
    const Tensor mine = Tensor::empty({count}, DType::u8), all = Tensor::empty({count * size()}, DType::u8);
    std::memcpy(mine.raw_data(), text.data(), text.size());
    run("all_gather_single", TUTTI_ALL_GATHER_SINGLE, {}, mine, all);
    std::vector<std::string> texts;
    for (int r = 0; r < size(); ++r)
      texts.emplace_back(static_cast<const char*>(all.raw_data()) + r * count, static_cast<size_t>(count));
    return texts;
  }

 private:
  void run(const char* op, tutti_collective collective, const CallAttrs& attrs, const Tensor& input,
           const Tensor& output) const {
    std::array<char, 1024> error{};
    tutti_collective_call call{};
    call.struct_size = sizeof call;
    call.collective = collective;
    call.dtype = static_cast<tutti_dtype>(input.dtype());
    call.reduce = static_cast<tutti_reduce>(attrs.reduce.kind());
    call.factor = attrs.reduce.factor();
    call.root = attrs.peer;
    call.input = first_byte(input);
    call.output = first_byte(output);
    call.input_count = input.numel();
    call.output_count = output.numel();
    call.error = error.data();
    call.error_bytes = error.size();
    const tutti_code code = table_.run(table_.user, &call);
    if (code == TUTTI_OK) return;
    error.back() = '\0';
    const std::string why = error[0] == '\0' ? "it does not say why" : error.data();
    c_interface::fail(code, fmt::format("{}: the group's run() returned {}: {}", op, static_cast<int>(code), why));
  }

  static char* first_byte(const Tensor& t) {
    return static_cast<char*>(t.storage()->data()) + t.offset() * itemsize(t.dtype());
  }

  const tutti_collectives table_;
};

}  // namespace

tutti_code tutti_package_num_groups(const tutti_package* package, int32_t* count) {
  return c_interface::guarded([&] {
    c_interface::refuse_null(count, "count");
    *count = static_cast<int32_t>(c_interface::package_of(package).manifest().groups.size());
  });
}

tutti_code tutti_package_group(const tutti_package* package, int32_t index, tutti_group_info* info) {
  return c_interface::guarded([&] {
    const auto& groups = c_interface::package_of(package).manifest().groups;
    TUTTI_CHECK(index >= 0 && static_cast<size_t>(index) < groups.size(), "there is no group {}, but {}", index,
                groups.size());
    const auto& group = groups[static_cast<size_t>(index)];
    c_interface::hand_out(tutti_group_info{0, group.name.c_str(), group.ranks, group.rank}, info);
  });
}

tutti_code tutti_package_set_groups(tutti_package* package, const tutti_collectives* groups, int32_t num_groups) {
  return c_interface::guarded([&] {
    auto& opened = c_interface::package_to_change(package);
    TUTTI_CHECK(num_groups >= 0, "the number of groups is {}", num_groups);
    if (num_groups > 0) c_interface::refuse_null(groups, "groups");
    std::vector<std::shared_ptr<RankGroup>> list;
    const auto* at = reinterpret_cast<const char*>(groups);  // of the caller's struct, which may be a longer one
    for (int32_t i = 0; i < num_groups; ++i) {
      size_t size = 0;
      std::memcpy(&size, at, sizeof size);
      tutti_collectives table{};
      TUTTI_CHECK(size >= sizeof table, "groups[{}].struct_size is {}; set it to sizeof groups[{}]", i, size, i);
      std::memcpy(&table, at, sizeof table);
      at += size;
      TUTTI_CHECK(table.run != nullptr, "groups[{}].run is NULL", i);
      TUTTI_CHECK(table.ranks >= 1 && table.rank >= 0 && table.rank < table.ranks,
                  "groups[{}] is rank {} of {}; ranks are from 0, and their number from 1", i, table.rank, table.ranks);
      list.push_back(std::make_shared<GroupInC>(table));
    }
    opened.set_groups(list);
  });
}
