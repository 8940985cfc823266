#include "tutti/ops/quantized_table_batched_embedding.h"

#include <algorithm>
#include <atomic>

#include "tutti/codegen/cpu_target.h"
#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/indexing/bags.h"
#include "tutti/ops/indexing/indices.h"
#include "tutti/ops/tables/code_rows.h"
#include "tutti/ops/tables/lookups.h"
#include "tutti/ops/tables/wide_code_rows.h"

namespace tutti {
namespace {

using facets::CodeRowLayout;
using facets::FeatureBags;
using facets::LookupOperands;
using facets::Lookups;

// Inputs: the operands of the batch (tables/lookups.h), the kinds of the tables i64 [tables, 2], format and columns,
// then their rows.
struct CodesAttrs {
  int64_t tables;
  int64_t columns, elements;  // TableLayout
  TablePooling pooling;
  BoundsCheck bounds;
  TableOutput output;

  static constexpr auto fields() {
    return field_list(field::number<&CodesAttrs::tables>("tables"), field::number<&CodesAttrs::columns>("columns"),
                      field::number<&CodesAttrs::elements>("elements"), field::rule<&CodesAttrs::pooling>("pooling"),
                      field::rule<&CodesAttrs::bounds>("bounds"), field::rule<&CodesAttrs::output>("output"));
  }
};
const CodesAttrs& codes_attrs(const OpCall& call) { return call.attrs.as<CodesAttrs>(); }
std::span<const Tensor> code_tables(const OpCall& call) {
  return call.inputs.last(static_cast<size_t>(codes_attrs(call).tables));
}
const Tensor& kinds_of(const OpCall& call) { return *(code_tables(call).data() - 1); }
LookupOperands code_batch(const OpCall& call) {
  return LookupOperands::at(call, 0, call.inputs.size() > static_cast<size_t>(codes_attrs(call).tables) + 4);
}

void infer_codes(const OpCall& call, OutputMetas& out) {
  const CodesAttrs& a = codes_attrs(call);
  for (size_t t = 0; t < code_tables(call).size(); ++t)
    TUTTI_CHECK(code_tables(call)[t].ndim() == 2 && code_tables(call)[t].dtype() == DType::u8,
                "{}: table {} is {}; expected u8 [rows, bytes]", call.op.name, t, describe(code_tables(call)[t]));
  TUTTI_CHECK(kinds_of(call).dtype() == DType::i64 && kinds_of(call).ndim() == 2 &&
                  kinds_of(call).size(0) == a.tables && kinds_of(call).size(1) == 2,
              "{}: the kinds are {}; expected i64 [{}, 2]", call.op.name, describe(kinds_of(call)), a.tables);
  const bool pooled = a.pooling != TablePooling::none;
  const SymInt bags = check_lookup_operands(call, code_batch(call), a.pooling, pooled && a.elements < 0);
  const DType dtype = a.output == TableOutput::bf16  ? DType::bf16
                      : a.output == TableOutput::f16 ? DType::f16
                                                     : DType::f32;
  if (!pooled) out.add(dtype, {code_batch(call).indices.size(0), a.columns});
  else if (a.elements >= 0) out.add(dtype, {a.elements});
  else out.add(dtype, {bags, a.columns});
  out.add(DType::i64, {6});
}

struct CodeTable {
  CodeRowLayout layout;
  int64_t columns;
};

// What the tables are, checked against their rows.
std::vector<CodeTable> read_kinds(const OpCall& call) {
  const std::vector<int64_t> kinds = facets::dense_indices(kinds_of(call));
  std::vector<CodeTable> tables;
  for (size_t t = 0; t < code_tables(call).size(); ++t) {
    const int64_t format = kinds[2 * t], columns = kinds[2 * t + 1];
    TUTTI_CHECK(
        format >= 0 && format <= static_cast<int64_t>(RowQuantization::fused_4bit_rowwise_sbhalf_front) && columns >= 0,
        "{}: table {} has format {} and {} columns; no format has this number, or there are too few columns",
        call.op.name, t, format, columns);
    tables.push_back({{static_cast<RowQuantization>(format), columns}, columns});
    const int64_t nbytes = tables.back().layout.nbytes, found = code_tables(call)[t].extents()[1];
    TUTTI_CHECK(found == nbytes, "{}: table {} has rows of {} bytes; expected {}, for {} columns", call.op.name, t,
                found, nbytes, columns);
  }
  return tables;
}

Lookups code_lookups(const OpCall& call, const std::vector<CodeTable>& tables) {
  Lookups lookups = read_lookups(call, code_batch(call), codes_attrs(call).columns);
  for (size_t t = 0; t < lookups.features.size(); ++t) {
    const FeatureBags& f = lookups.features[t];
    TUTTI_CHECK(
        f.table >= 0 && f.table < codes_attrs(call).tables && tables[static_cast<size_t>(f.table)].columns == f.width,
        "{}: feature {} of the layout looks up {} columns of table {}", call.op.name, t, f.width, f.table);
  }
  return lookups;
}

void report_codes(const OpCall& call, const Lookups& lookups, bool all_in_range, const Tensor& report) {
  std::vector<int64_t> rows;
  for (const Tensor& t : code_tables(call)) rows.push_back(t.extents()[0]);
  const IndexReport found = all_in_range ? IndexReport{} : find_bad_indices(lookups, rows, true);
  facets::report_bad_indices(call, found, codes_attrs(call).bounds, report);
}

void reference_codes(const OpCall& call, std::span<const Tensor> outputs) {
  const CodesAttrs& a = codes_attrs(call);
  const std::vector<CodeTable> tables = read_kinds(call);
  const Lookups lookups = code_lookups(call, tables);
  report_codes(call, lookups, false, outputs[1]);
  const LookupOperands batch = code_batch(call);
  for (const FeatureBags& f : lookups.features) {
    const Tensor rows = to_contiguous(code_tables(call)[static_cast<size_t>(f.table)]);
    const CodeRowLayout& layout = tables[static_cast<size_t>(f.table)].layout;
    for (int64_t b = f.first_bag; b < f.first_bag + f.bags; ++b) {
      const int64_t begin = lookups.offsets[static_cast<size_t>(b)], end = lookups.offsets[static_cast<size_t>(b) + 1];
      for (int64_t d = 0; d < f.width; ++d) {
        double sum = facets::kSumIdentity;
        for (int64_t p = begin; p < end; ++p) {
          const int64_t number = facets::read_int64(lookups.indices, p);
          double term = facets::kSumIdentity;
          if (number >= 0 && number < rows.extents()[0]) {
            const uint8_t* row = rows.data<uint8_t>() + number * layout.nbytes;
            term = static_cast<double>(layout.scale_of(row)) * layout.code_of(row, d) +
                   static_cast<double>(layout.minimum_of(row));
            if (batch.weights) term *= facets::read_double(*batch.weights, p * batch.weights->strides()[0]);
          }
          if (a.pooling == TablePooling::none) facets::write_double(outputs[0], p * f.width + d, term);
          sum += term;
        }
        if (a.pooling == TablePooling::none) continue;
        if (a.pooling == TablePooling::mean) sum /= static_cast<double>(std::max<int64_t>(end - begin, 1));
        facets::write_double(outputs[0], lookups.place(f, b, 0, a.pooling) + d, sum);
      }
    }
  }
}

// ---- kernel ---------------------------------------------------------------------------------------------------------

template <class Index>
int64_t pool_codes(const Tensor& table, const CodeTable& kind, TablePooling pooling, const Lookups& lookups,
                   const FeatureBags& f, const Tensor& factors, const Tensor& out, int64_t first_bag,
                   int64_t last_bag) {
  const facets::CodeRows<Index> rows{
      {table.data<uint8_t>(), table.extents()[0], table.strides()[0], kind.layout.nbytes,
       static_cast<const Index*>(lookups.indices.raw_data()),
       lookups.offsets[static_cast<size_t>(f.first_bag + f.bags)], factors.defined() ? factors.data<float>() : nullptr},
      kind.layout,
      kind.columns};
  const int64_t ahead = rows.rows.far();
  const bool wide = codegen::has_wide_registers(codegen::cpu_target()) && facets::has_wide_blocks(kind.columns),
             mean = pooling == TablePooling::mean;
  const auto pool = [&](int64_t first, int64_t last, int64_t place) {
    return wide ? pool_wide(rows, first, last, mean, out.raw_data(), out.dtype(), place, ahead)
                : rows.pool(first, last, mean, out.raw_data(), out.dtype(), place, ahead);
  };
  int64_t outside = 0;
  for (int64_t b = first_bag; b < last_bag; ++b) {
    const int64_t first = lookups.offsets[static_cast<size_t>(b)], last = lookups.offsets[static_cast<size_t>(b) + 1];
    if (pooling == TablePooling::none) {
      for (int64_t p = first; p < last; ++p) outside += pool(p, p + 1, p * f.width);
    } else {
      outside += pool(first, last, lookups.place(f, b, 0, pooling));
    }
  }
  return outside;
}

// A kernel and not a recipe: which rows are added, and how many, is in memory.
void run_codes(const OpCall& call, std::span<const Tensor> outputs) {
  const std::vector<CodeTable> kinds = read_kinds(call);
  const Lookups lookups = code_lookups(call, kinds);
  if (outputs[0].numel() == 0) return report_codes(call, lookups, false, outputs[1]);
  std::vector<Tensor> tables(code_tables(call).begin(), code_tables(call).end());
  for (Tensor& t : tables) {
    if (t.strides()[1] != 1) t = to_contiguous(t);  // views of rows are read where they are
  }
  const Tensor* weights = code_batch(call).weights;
  const Tensor factors = weights ? facets::dense_as(*weights, DType::f32) : Tensor{};
  std::atomic<int64_t> outside{0};
  facets::each_part(lookups, [&](const FeatureBags& f, int64_t first, int64_t last) {
    const size_t t = static_cast<size_t>(f.table);
    const auto pool = lookups.indices.dtype() == DType::i64 ? pool_codes<int64_t> : pool_codes<int32_t>;
    const int64_t mine =
        pool(tables[t], kinds[t], codes_attrs(call).pooling, lookups, f, factors, outputs[0], first, last);
    if (mine > 0) outside += mine;
  });
  report_codes(call, lookups, outside == 0, outputs[1]);
}

// ---- the op ---------------------------------------------------------------------------------------------------------

std::string sharding_of_codes(const OpCall& call) {
  std::string text;
  for (size_t t = 0; t < code_tables(call).size(); ++t) text += fmt::format(" #W{}[AA]", t);
  return fmt::format("#f[AA] #I[A] #O[A]{} #k[AA]{} -> y[{}] #r[A]", code_batch(call).weights ? " #s[A]" : "", text,
                     codes_attrs(call).elements < 0 || codes_attrs(call).pooling == TablePooling::none ? "AA" : "A");
}

Cost cost_of_codes(const OpCall& call) {
  const double entries = static_cast<double>(code_batch(call).indices.numel());
  double bytes = 0;
  for (const Tensor& t : code_tables(call)) bytes += static_cast<double>(t.extents()[1]);
  const double of_row = bytes / static_cast<double>(std::max<int64_t>(codes_attrs(call).tables, 1));
  return {2 * entries * of_row, entries * of_row + static_cast<double>(code_batch(call).indices.nbytes() +
                                                                       code_batch(call).offsets.nbytes())};
}

// Tables of 21, 64 and 32 columns, each in a format, and four features of two bags, the first and the last of table 0.
std::vector<Sample> samples_of_codes() {
  using enum RowQuantization;
  const Tensor layout = Tensor::of<int64_t>({0, -1, 0, 21, 1, -1, 21, 64, 2, -1, 85, 32, 0, -1, 117, 21}, {4, 4}),
               indices = Tensor::of<int64_t>({6, 0, 6, 3, 3, 1, 2, 0, 5, 4, 1}),
               offsets = Tensor::of<int64_t>({0, 3, 4, 4, 6, 7, 8, 10, 11}), weights = facets::sample_tensor(9, {11});
  const auto inputs = [&](RowQuantization a, RowQuantization b, RowQuantization c, const Tensor& given,
                          bool weighted = false) {
    const std::pair<RowQuantization, int64_t> kinds[] = {{a, 21}, {b, 64}, {c, 32}};
    std::vector<int64_t> numbers;
    std::vector<Tensor> list = {layout, given, offsets};
    if (weighted) list.push_back(weights);
    for (const auto& [format, columns] : kinds) numbers.insert(numbers.end(), {static_cast<int64_t>(format), columns});
    list.push_back(Tensor::of<int64_t>(numbers, {3, 2}));
    uint64_t seed = 1;
    for (const auto& [format, columns] : kinds)
      list.push_back(quantize_rows(facets::sample_tensor(seed++, {7, columns}), format));
    return list;
  };
  const auto attrs = [](TablePooling pooling, BoundsCheck bounds = BoundsCheck::fatal,
                        TableOutput output = TableOutput::as_tables) {
    return Attrs::of(CodesAttrs{3, 138, -1, pooling, bounds, output});
  };
  const Tensor pruned = Tensor::of<int32_t>({6, -1, 6, 3, 9, 1, 2, -1, 5, 4, 1});
  return {{"sum", inputs(fused_8bit_rowwise, fused_4bit_rowwise_sbhalf, fused_8bit_rowwise_sbhalf_front, indices),
           attrs(TablePooling::sum)},
          {"mean", inputs(fused_4bit_rowwise_sbhalf, fused_8bit_rowwise, fused_4bit_rowwise_sbhalf_front, indices),
           attrs(TablePooling::mean)},
          {"weighted_f16",
           inputs(fused_8bit_rowwise_sbhalf_front, fused_4bit_rowwise_sbhalf_front, fused_8bit_rowwise, indices, true),
           attrs(TablePooling::sum, BoundsCheck::fatal, TableOutput::f16)},
          {"pruned_i32",
           inputs(fused_8bit_rowwise_sbhalf_front, fused_4bit_rowwise_sbhalf_front, fused_8bit_rowwise, pruned),
           attrs(TablePooling::mean, BoundsCheck::ignore)},
          {"sequence",
           {Tensor::of<int64_t>({0, -1, 0, 16}, {1, 4}), indices, Tensor::of<int64_t>({0, 4, 11}),
            Tensor::of<int64_t>({static_cast<int64_t>(fused_4bit_rowwise_sbhalf), 16}, {1, 2}),
            quantize_rows(facets::sample_tensor(5, {7, 16}), fused_4bit_rowwise_sbhalf)},
           Attrs::of(CodesAttrs{1, 16, -1, TablePooling::none, BoundsCheck::fatal, TableOutput::bf16})}};
}

const OpDef kCodes{.name = "quantized_table_batched_embedding_bags",
                   .num_inputs = -1,
                   .num_outputs = 2,
                   .infer = infer_codes,
                   .reference = reference_codes,
                   .gradient = {.none = "quantized tables are for inference: their codes are whole numbers"},
                   .kernel = run_codes,
                   .sharding = sharding_of_codes,
                   .cost = cost_of_codes,
                   .samples = samples_of_codes};

}  // namespace

TableBatchResult quantized_table_batched_embedding_bags(std::span<const QuantizedTable> tables, const TableBatch& batch,
                                                        const TableBatchOptions& options) {
  constexpr const char* kName = "quantized_table_batched_embedding_bags";
  std::vector<int64_t> columns, kinds;
  for (const QuantizedTable& t : tables) {
    TUTTI_CHECK(t.rows.defined(), "{}: table {} has no rows", kName, columns.size());
    columns.push_back(t.columns);
    kinds.insert(kinds.end(), {static_cast<int64_t>(t.format), t.columns});
  }
  TUTTI_CHECK(batch.indices.defined() && batch.offsets.defined(), "{}: the batch has no {}", kName,
              batch.indices.defined() ? "offsets" : "indices");
  const facets::TableLayout layout = facets::table_layout(kName, batch, columns, options.pooling);
  std::vector<Tensor> inputs = {beside(batch.indices, layout.features), batch.indices, batch.offsets};
  if (batch.per_sample_weights.defined()) inputs.push_back(batch.per_sample_weights);
  inputs.push_back(beside(batch.indices, Tensor::of<int64_t>(kinds, {static_cast<int64_t>(tables.size()), 2})));
  for (const QuantizedTable& t : tables) inputs.push_back(t.rows);
  Tensor outputs[2];
  apply(kCodes, inputs,
        Attrs::of(CodesAttrs{static_cast<int64_t>(tables.size()), layout.columns, layout.elements, options.pooling,
                             options.bounds, options.output}),
        outputs);
  return {outputs[0], outputs[1]};
}

}  // namespace tutti

TUTTI_OPS(quantized_table_batched_embedding, &kCodes)
