#include "tutti/plan/passes/fuse.h"

#include <algorithm>
#include <map>
#include <set>

#include "tutti/plan/dependencies.h"
#include "tutti/plan/failure.h"
#include "tutti/plan/node_call.h"
#include "tutti/plan/passes/fuse_cost.h"
#include "tutti/plan/passes/group_order.h"
#include "tutti/plan/passes/pass_state.h"
#include "tutti/plan/recipe_facts.h"

namespace tutti::graph {
namespace {

bool row_is_innermost(const Space& space) {
  for (size_t i = 0; i < space.row.size(); ++i) {
    if (space.row[i] != static_cast<int64_t>(space.sizes.size() - space.row.size() + i)) return false;
  }
  return true;
}

Space without_row(const Space& space) {
  Space kept;
  for (size_t d = 0; d + space.row.size() < space.sizes.size(); ++d) kept.sizes.push_back(space.sizes[d]);
  return kept;
}

// A set of small integers.
class Bits {
 public:
  explicit Bits(size_t n) : words_((n + 63) / 64, 0) {}
  void set(size_t i) { words_[i / 64] |= uint64_t{1} << (i % 64); }
  bool has(size_t i) const { return words_[i / 64] >> (i % 64) & 1; }
  void add(const Bits& o) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= o.words_[i];
  }

 private:
  std::vector<uint64_t> words_;
};

// What the nodes of a group read and write at each point of its space, each access once.
struct Accesses {
  std::vector<Access> reads, writes;

  size_t size() const { return reads.size() + writes.size(); }
  bool has(const Access& a) const { return is_in(reads, a) || is_in(writes, a); }
  void add(const Node& node, const NodeSpace& own, const Space& space) {
    const auto accesses = accesses_over(node, own, space);
    for (size_t i = 0; i < accesses.size(); ++i) {
      std::vector<Access>& list = i < node.inputs.size() ? reads : writes;
      if (!is_in(list, accesses[i])) list.push_back(accesses[i]);
    }
  }

 private:
  static bool is_in(const std::vector<Access>& list, const Access& a) {
    return std::find(list.begin(), list.end(), a) != list.end();
  }
};

bool is_same(const Space& a, const Space& b) { return a.sizes == b.sizes && a.row == b.row; }

// The latest first.
using GroupSet = std::set<int32_t, std::greater<>>;

class Fuser {
 public:
  Fuser(const Graph& graph, const FuseOptions& options)
      : graph_(graph),
        options_(options),
        before_(dependencies_of(graph)),
        group_of_(graph.nodes.size(), -1),
        cost_(graph, spaces_) {}

  std::vector<Group> run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      spaces_.push_back(space_of(node, graph_));
      const int32_t g = spaces_[n] && options_.fuse ? find_group(static_cast<int32_t>(n)) : -1;
      place(static_cast<int32_t>(n), g);
    }
    return in_order(graph_, before_, std::move(groups_));
  }

 private:
  Group& group(int32_t g) { return groups_[static_cast<size_t>(g)]; }

  // A group the node can join: that of the latest producer first, then the latest that reads the same element.
  int32_t find_group(int32_t n) {
    const Node& node = graph_.nodes[static_cast<size_t>(n)];
    if (node.op->check != nullptr) return -1;  // runs before its kernel, on operands in memory
    if (!spaces_[static_cast<size_t>(n)]->space.row.empty() &&
        !row_is_innermost(spaces_[static_cast<size_t>(n)]->space))
      return -1;
    GroupSet producers, sharing;
    for (const int32_t p : before_[static_cast<size_t>(n)]) producers.insert(group_of_[static_cast<size_t>(p)]);
    for (const int32_t g : producers) {
      if (can_join(g, n)) return g;
    }
    for (const Value& v : node.inputs) {
      GroupSet& of_value = readers_[{v.buffer, v.version}];
      std::erase_if(of_value, [&](int32_t g) { return is_full(g); });
      sharing.insert(of_value.begin(), of_value.end());
    }
    for (const int32_t g : sharing) {
      if (!producers.contains(g) && can_join(g, n)) return g;
    }
    return -1;
  }

  // Whether it can take no other node: each writes something new.
  bool is_full(int32_t g) const {
    return static_cast<int>(groups_[static_cast<size_t>(g)].nodes.size()) >= options_.max_nodes ||
           static_cast<int>(accesses_[static_cast<size_t>(g)].size()) >= options_.max_operands;
  }

  bool can_join(int32_t g, int32_t n) {
    const Group& target = group(g);
    const Node& node = graph_.nodes[static_cast<size_t>(n)];
    const NodeSpace& own = *spaces_[static_cast<size_t>(n)];
    if (!target.is_kernel || target.region != node.origin.region || is_full(g)) return false;
    if (own.leaf > 0 && !target.space.row.empty() && own.leaf != target.leaf) return false;
    const bool has_report =
        std::any_of(target.nodes.begin(), target.nodes.end(), [&](int32_t m) { return reports(m); });
    if (has_report && (reports(n) || writes_given(node, graph_))) return false;
    const auto space = joint_space(target.space, own);
    if (!space || !row_is_innermost(*space)) return false;
    if (is_per_row(own, *space) && counts(node)) return false;
    if (reaches(g, n) || !operands_fit(g, n, *space)) return false;
    return space->row.empty() || cost_.pays(target.nodes, n, *space);
  }

  bool reports(int32_t n) const { return graph_.nodes[static_cast<size_t>(n)].fails == Fails::while_writing; }

  bool counts(const Node& node) const {
    InlineDims<DType> dtypes;
    for (const Value& v : node.outputs) dtypes.push_back(v.dtype);
    return RecipeFacts(NodeCall(node, graph_).call, dtypes).counts();
  }

  static std::optional<Space> joint_space(const Space& group, const NodeSpace& own) {
    if (auto space = common_space(group, own.space)) return space;
    if (group.row.empty() || !own.space.row.empty()) return std::nullopt;
    // One point per row.
    const auto kept = common_space(without_row(group), own.space);
    if (!kept || kept->sizes.size() + group.row.size() > kMaxDims) return std::nullopt;
    Space space{kept->sizes, {}};
    for (size_t i = 0; i < group.row.size(); ++i) {
      space.row.push_back(space.sizes.ndim());
      space.sizes.push_back(group.sizes[group.sizes.size() - group.row.size() + i]);
    }
    return space;
  }

  // Whether something that `n` needs must run after group `g`.
  bool reaches(int32_t g, int32_t n) const {
    for (const int32_t p : before_[static_cast<size_t>(n)]) {
      const int32_t h = group_of_[static_cast<size_t>(p)];
      if (h != g && depends_[static_cast<size_t>(h)].has(static_cast<size_t>(g))) return true;
    }
    return false;
  }

  // Shares an element, moves every buffer alike where one of the nodes writes it, and does not need too many operands.
  bool operands_fit(int32_t g, int32_t n, const Space& space) const {
    const Group& target = groups_[static_cast<size_t>(g)];
    const Accesses theirs =
        is_same(space, target.space) ? accesses_[static_cast<size_t>(g)] : accesses_in(target, space);
    const Node& node = graph_.nodes[static_cast<size_t>(n)];
    const NodeSpace& own = *spaces_[static_cast<size_t>(n)];
    Accesses all = theirs;
    all.add(node, own, space);
    if (static_cast<int>(all.size()) > options_.max_operands) return false;
    for (const Access& w : all.writes) {
      for (const std::vector<Access>* list : {&all.reads, &all.writes}) {
        for (const Access& a : *list) {
          if (a.buffer == w.buffer && !a.same_place(w)) return false;
        }
      }
    }
    const auto accesses = accesses_over(node, own, space);
    return std::any_of(accesses.begin(), accesses.begin() + static_cast<std::ptrdiff_t>(node.inputs.size()),
                       [&](const Access& a) { return theirs.has(a); });
  }

  Accesses accesses_in(const Group& group, const Space& space) const {
    Accesses all;
    for (const int32_t m : group.nodes)
      all.add(graph_.nodes[static_cast<size_t>(m)], *spaces_[static_cast<size_t>(m)], space);
    return all;
  }

  void place(int32_t n, int32_t g) {
    const Node& node = graph_.nodes[static_cast<size_t>(n)];
    const auto& own = spaces_[static_cast<size_t>(n)];
    const bool is_new = g < 0;
    if (is_new) {
      g = static_cast<int32_t>(groups_.size());
      groups_.push_back({.is_kernel = own.has_value(), .region = node.origin.region});
      if (own) group(g).space = own->space;
      depends_.emplace_back(graph_.nodes.size());
      accesses_.emplace_back();
    } else if (const Space joint = *joint_space(group(g).space, *own); !is_same(joint, group(g).space)) {
      group(g).space = joint;
      accesses_[static_cast<size_t>(g)] = accesses_in(group(g), joint);
    }
    if (own) accesses_[static_cast<size_t>(g)].add(node, *own, group(g).space);
    if (own && own->leaf > 0) group(g).leaf = own->leaf;
    group(g).nodes.push_back(n);
    group_of_[static_cast<size_t>(n)] = g;
    Bits added(graph_.nodes.size());
    for (const int32_t p : before_[static_cast<size_t>(n)]) {
      const int32_t h = group_of_[static_cast<size_t>(p)];
      if (h == g) continue;
      added.set(static_cast<size_t>(h));
      added.add(depends_[static_cast<size_t>(h)]);
    }
    depends_[static_cast<size_t>(g)].add(added);
    // Nothing depends on a new group yet.
    for (size_t h = is_new ? groups_.size() : 0; h < groups_.size(); ++h) {
      if (depends_[h].has(static_cast<size_t>(g))) depends_[h].add(added);
    }
    for (const Value& v : node.inputs) readers_[{v.buffer, v.version}].insert(g);
  }

  const Graph& graph_;
  const FuseOptions& options_;
  const std::vector<std::vector<int32_t>> before_;
  std::vector<std::optional<NodeSpace>> spaces_;
  std::vector<int32_t> group_of_;
  std::vector<Group> groups_;
  std::vector<Accesses> accesses_;  // of each group of a kernel
  std::vector<Bits> depends_;       // per group: the groups it comes after, also through others
  std::map<std::pair<int32_t, int32_t>, GroupSet> readers_;  // of a version
  FuseCost cost_;
};

}  // namespace

void fuse(PassState& state) { state.groups = Fuser(state.graph, state.options.fuse).run(); }

std::string to_string(std::span<const Group> groups, const Graph& graph) {
  const auto nodes_of = [&](const Group& group) {
    std::string text;
    for (const int32_t n : group.nodes)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, graph.nodes[static_cast<size_t>(n)].op->name);
    return text;
  };
  std::string text;
  for (const Group& group : groups) {
    text += group.is_kernel ? fmt::format("kernel over {}: ", group.space.sizes) : "call ";
    text += nodes_of(group);
    for (const Group& kernel : group.prologue) text += "; its first operand from " + nodes_of(kernel);
    for (const Group& kernel : group.epilogue) text += "; on its blocks " + nodes_of(kernel);
    text += "\n";
  }
  return text;
}

}  // namespace tutti::graph
