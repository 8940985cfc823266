#include "tutti/codegen/llvm/monoid.h"
#include "tutti/codegen/llvm/row_loop.h"

namespace tutti::codegen {

using llvm::Value;

// Inclusive scans run element by element: one chain per row, left to right, is what defines their rounding.
void emit_scan(Emitter& e, const std::string& name) {
  std::vector<Monoid> monoids;
  std::vector<int32_t> values;
  for (size_t k = 0; k < e.spec.reductions.size(); k += monoids.back().reduction_count()) {
    monoids.emplace_back(e, k);
    values.push_back(monoids.back().value_node());
  }
  const auto scan_row = [&](Frame& frame) {
    llvm::IRBuilder<>& b = e.b;
    std::vector<Components> slots;
    for (const Monoid& monoid : monoids) {
      slots.emplace_back();
      for (Value* v : monoid.identity(1)) {
        slots.back().push_back(e.slot(v->getType(), "running"));
        b.CreateStore(v, slots.back().back());
      }
    }
    e.prepare_uniform(frame, values);
    e.prepare_uniform(frame, e.spec.results);
    e.for_loop("element", e.i64(0), frame.length, e.i64(1), [&](Value* i) {
      const auto x = e.evaluate(frame, values, Chunk{i})[0];
      Frame with_results = frame;
      for (size_t m = 0; m < monoids.size(); ++m) {
        Components running;
        for (size_t k = 0; k < slots[m].size(); ++k)
          running.push_back(b.CreateLoad(monoids[m].component_types(1)[k], slots[m][k]));
        running = monoids[m].combine(running, monoids[m].lift(x[m], i, nullptr));
        for (size_t k = 0; k < slots[m].size(); ++k) b.CreateStore(running[k], slots[m][k]);
        for (Value* result : monoids[m].results(running)) with_results.reduced.push_back(result);
      }
      const auto results = e.evaluate(with_results, e.spec.results, Chunk{i})[0];
      for (size_t k = 0; k < results.size(); ++k)
        e.store_elements(with_results, e.spec.inputs.size() + k, Chunk{i}, results[k]);
    });
  };
  emit_row_loop(e, name, 1, [&](Value*, Frame& frame) { e.with_row_picks(frame, [&] { scan_row(frame); }); });
}

}  // namespace tutti::codegen
