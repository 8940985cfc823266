#include "tutti/parallel/table_gradients.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
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
void get(std::string_view& bytes, T* values, int64_t count) {
  const size_t nbytes = static_cast<size_t>(count) * sizeof(T);
  TUTTI_CHECK_ENV(nbytes <= bytes.size(), "TableGradients: the bytes of a rank end {} before they should",
                  nbytes - bytes.size());
  if (nbytes > 0) std::memcpy(values, bytes.data(), nbytes);
  bytes.remove_prefix(nbytes);
}

// The first of the rows that is none of the table's or does not come after the row before it; nothing when all are
// right.
std::optional<int64_t> wrong_row(const Tensor& rows, int64_t table_rows) {
  const Tensor plain = to_contiguous(rows);
  const int64_t* row = plain.data<int64_t>();
  for (int64_t i = 0, least = 0; i < plain.numel(); least = row[i++] + 1)
    if (row[i] < least || row[i] >= table_rows) return row[i];
  return std::nullopt;
}

}  // namespace

TableGradients::TableGradients(int64_t count, comm::ProcessGroup* group, std::vector<int64_t> table_rows)
    : count_(count), group_(group), table_rows_(std::move(table_rows)) {
  TUTTI_CHECK(count > 0 && std::has_single_bit(static_cast<uint64_t>(count)),
              "TableGradients: {} virtual shards; expected a power of two", count);
}

// Inserts a node, and merges siblings: [a, a + n) and [a + n, a + 2n) where a is a multiple of 2n. All sums are made
// before `nodes` changes, so that an error changes nothing.
void TableGradients::push(std::vector<Node>& nodes, Node node) const {
  const auto at = std::lower_bound(nodes.begin(), nodes.end(), node.first,
                                   [](const Node& n, int64_t first) { return n.first < first; });
  const bool is_before = at != nodes.begin() && std::prev(at)->first + std::prev(at)->count > node.first;
  const bool is_behind = at != nodes.end() && node.first + node.count > at->first;
  TUTTI_CHECK(!is_before && !is_behind, "TableGradients: virtual shard {} was added twice in a step",
              is_before ? node.first : at->first);
  auto begin = at, end = at;  // the nodes that are now a part of this one
  for (;;) {
    const bool is_right = node.first / node.count % 2 == 1;
    if (is_right ? begin == nodes.begin() : end == nodes.end()) break;
    const Node& other = is_right ? *std::prev(begin) : *end;
    if (other.count != node.count || other.first != node.first + (is_right ? -node.count : node.count)) break;
    const Node &left = is_right ? other : node, &right = is_right ? node : other;
    std::vector<RowGradients> sums;
    for (size_t t = 0; t < table_rows_.size(); ++t) {
      const RowGradients pair[] = {left.tables[t], right.tables[t]};
      sums.push_back(add_row_gradients(pair, table_rows_[t]).trimmed());
    }
    node = {left.first, 2 * left.count, std::move(sums)};
    if (is_right) --begin;
    else ++end;
  }
  if (begin == end) {
    nodes.insert(begin, std::move(node));
  } else {
    *begin = std::move(node);
    nodes.erase(std::next(begin), end);
  }
}

void TableGradients::add(int64_t shard, const std::vector<RowGradients>& tables) {
  const NoGradScope no_grad;
  TUTTI_CHECK(shard >= 0 && shard < count_, "TableGradients: virtual shard {} of {}", shard, count_);
  TUTTI_CHECK(tables.size() == table_rows_.size(), "TableGradients: gradients of {} tables; expected {}", tables.size(),
              table_rows_.size());
  Node node{shard, 1, {}};
  for (size_t t = 0; t < tables.size(); ++t) {
    TUTTI_CHECK(tables[t].values.dtype() == DType::f32, "TableGradients: gradients are {}; expected f32",
                describe(tables[t].values));
    const RowGradients& table = node.tables.emplace_back(tables[t].trimmed());
    TUTTI_CHECK(table.values.ndim() == 2 && table.rows.dtype() == DType::i64 && table.rows.ndim() == 1 &&
                    table.rows.numel() == table.values.extent(0),
                "TableGradients: table {} has gradients {} of rows {}; expected a row of f32 for each i64", t,
                describe(table.values), describe(table.rows));
    const std::optional<int64_t> wrong = wrong_row(table.rows, table_rows_[t]);
    TUTTI_CHECK(!wrong, "TableGradients: table {} has a gradient of row {}; expected ascending rows of its {}", t,
                *wrong, table_rows_[t]);
    const int64_t width = nodes_.empty() ? table.values.extent(1) : nodes_.front().tables[t].values.extent(1);
    TUTTI_CHECK(table.values.extent(1) == width, "TableGradients: rows of table {} are {} wide; expected {}", t,
                table.values.extent(1), width);
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

std::vector<TableGradients::Node> TableGradients::from_bytes(std::string_view bytes) const {
  std::vector<Node> nodes;
  while (!bytes.empty()) {
    Node node{};
    get(bytes, &node.first, 1);
    get(bytes, &node.count, 1);
    TUTTI_CHECK_ENV(node.count > 0 && node.count <= count_ && std::has_single_bit(static_cast<uint64_t>(node.count)) &&
                        node.first >= 0 && node.first < count_ && node.first % node.count == 0,
                    "TableGradients: a rank has sent {} virtual shards from {} on of {}", node.count, node.first,
                    count_);
    for (const int64_t table_rows : table_rows_) {
      int64_t sizes[2];
      get(bytes, sizes, 2);
      int64_t row_nbytes = 0, nbytes = 0;
      const bool fits =
          sizes[0] >= 0 && sizes[1] >= 0 && !__builtin_mul_overflow(sizes[1], int64_t{sizeof(float)}, &row_nbytes) &&
          !__builtin_add_overflow(row_nbytes, int64_t{sizeof(int64_t)}, &row_nbytes) &&
          !__builtin_mul_overflow(sizes[0], row_nbytes, &nbytes) && static_cast<size_t>(nbytes) <= bytes.size();
      TUTTI_CHECK_ENV(fits, "TableGradients: a rank has sent {} rows of {} values in {} bytes", sizes[0], sizes[1],
                      bytes.size());
      RowGradients table{Tensor::empty({sizes[0]}, DType::i64), Tensor::empty({sizes[0], sizes[1]}, DType::f32),
                         Tensor::scalar(sizes[0])};
      get(bytes, table.rows.data<int64_t>(), sizes[0]);
      get(bytes, table.values.data<float>(), sizes[0] * sizes[1]);
      const std::optional<int64_t> wrong = wrong_row(table.rows, table_rows);
      TUTTI_CHECK_ENV(!wrong, "TableGradients: a rank has sent row {} of a table of {}", *wrong, table_rows);
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
  TUTTI_ASSERT(all.size() == 1, "{} sums of gradients of tables are left", all.size());
  return std::move(all.front().tables);
}

}  // namespace tutti::parallel
