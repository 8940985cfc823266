#include "tutti/parallel/table_gradients.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"

namespace tutti::parallel {
namespace {

// Appends and reads values of one type.
template <class T>
void put(std::string& bytes, const T* values, int64_t count) {
  bytes.append(reinterpret_cast<const char*>(values), static_cast<size_t>(count) * sizeof(T));
}
template <class T>
void get(const std::string& bytes, size_t& at, T* values, int64_t count) {
  const size_t nbytes = static_cast<size_t>(count) * sizeof(T);
  TUTTI_ASSERT(nbytes <= bytes.size() - at, "gradients of tables from a rank end after {} bytes", bytes.size());
  if (nbytes > 0) std::memcpy(values, bytes.data() + at, nbytes);
  at += nbytes;
}

}  // namespace

TableGradients::TableGradients(int64_t count, comm::ProcessGroup* group, std::vector<int64_t> table_rows)
    : count_(count), group_(group), table_rows_(std::move(table_rows)) {
  TUTTI_CHECK(count > 0 && std::has_single_bit(static_cast<uint64_t>(count)),
              "TableGradients: {} virtual shards; expected a power of two", count);
}

// Inserts a node, and merges siblings: [a, a + n) and [a + n, a + 2n) where a is a multiple of 2n.
void TableGradients::push(std::vector<Node>& nodes, Node node) const {
  auto at = std::lower_bound(nodes.begin(), nodes.end(), node.first,
                             [](const Node& n, int64_t first) { return n.first < first; });
  const bool is_new = (at == nodes.end() || node.first + node.count <= at->first) &&
                      (at == nodes.begin() || std::prev(at)->first + std::prev(at)->count <= node.first);
  TUTTI_CHECK(is_new, "TableGradients: virtual shard {} was added twice in a step", node.first);
  at = nodes.insert(at, std::move(node));
  for (;;) {
    const bool is_right = at->first / at->count % 2 == 1;
    if (is_right ? at == nodes.begin() : std::next(at) == nodes.end()) return;
    const auto left = is_right ? std::prev(at) : at, right = std::next(left);
    if (left->count != right->count || left->first + left->count != right->first) return;
    for (size_t t = 0; t < table_rows_.size(); ++t) {
      const RowGradients pair[] = {left->tables[t], right->tables[t]};
      left->tables[t] = add_row_gradients(pair, table_rows_[t]).trimmed();
    }
    left->count *= 2;
    at = std::prev(nodes.erase(right));
  }
}

void TableGradients::add(int64_t shard, const std::vector<RowGradients>& tables) {
  const NoGradScope no_grad;
  TUTTI_CHECK(shard >= 0 && shard < count_, "TableGradients: virtual shard {} of {}", shard, count_);
  TUTTI_CHECK(tables.size() == table_rows_.size(), "TableGradients: gradients of {} tables; expected {}", tables.size(),
              table_rows_.size());
  Node node{shard, 1, {}};
  for (const RowGradients& table : tables) {
    TUTTI_CHECK(table.values.dtype() == DType::f32, "TableGradients: gradients are {}; expected f32",
                describe(table.values));
    node.tables.push_back(table.trimmed());
  }
  push(nodes_, std::move(node));
}

std::string TableGradients::to_bytes() const {
  std::string bytes;
  for (const Node& node : nodes_) {
    put(bytes, &node.first, 1);
    put(bytes, &node.count, 1);
    for (const RowGradients& table : node.tables) {
      const int64_t sizes[] = {table.rows.numel(), table.values.extent(1)};
      put(bytes, sizes, 2);
      put(bytes, to_contiguous(table.rows).data<int64_t>(), sizes[0]);
      put(bytes, to_contiguous(table.values).data<float>(), sizes[0] * sizes[1]);
    }
  }
  return bytes;
}

std::vector<TableGradients::Node> TableGradients::from_bytes(const std::string& bytes) const {
  std::vector<Node> nodes;
  for (size_t at = 0; at < bytes.size();) {
    Node node{};
    get(bytes, at, &node.first, 1);
    get(bytes, at, &node.count, 1);
    for (size_t t = 0; t < table_rows_.size(); ++t) {
      int64_t sizes[2];
      get(bytes, at, sizes, 2);
      RowGradients table{Tensor::empty({sizes[0]}, DType::i64), Tensor::empty({sizes[0], sizes[1]}, DType::f32),
                         Tensor::scalar(sizes[0])};
      get(bytes, at, table.rows.data<int64_t>(), sizes[0]);
      get(bytes, at, table.values.data<float>(), sizes[0] * sizes[1]);
      node.tables.push_back(std::move(table));
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::vector<RowGradients> TableGradients::finish() {
  const NoGradScope no_grad;
  std::vector<Node> all;
  if (group_ == nullptr || group_->size() == 1) {
    all = std::exchange(nodes_, {});
  } else {
    const std::vector<std::string> parts = group_->all_gather_bytes(to_bytes());
    nodes_.clear();
    for (const std::string& part : parts)
      for (Node& node : from_bytes(part)) push(all, std::move(node));
  }
  int64_t missing = 0;
  for (const Node& node : all) missing = node.first == missing ? node.first + node.count : missing;
  TUTTI_CHECK(missing == count_, "TableGradients: virtual shard {} of {} was not added in this step", missing, count_);
  return std::move(all.front().tables);
}

}  // namespace tutti::parallel
