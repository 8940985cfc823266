// The emitter of one kernel: module, builder, and what every loop shape needs - operands of a row, vectors of
// elements, expression evaluation over them.
//
// A *frame* is one function working on one row (or column strip): addresses of element 0, uniform values. A *chunk* is
// a group of consecutive elements that one vector holds. Nodes that are the same for every element of a row are
// *uniform*: they are computed once per frame as scalars and spread over the lanes.
#pragma once

#include <llvm/ADT/ArrayRef.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <memory>
#include <vector>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/kernel.h"

namespace tutti::codegen {

struct Chunk {
  llvm::Value* index;            // i64: element of lane 0 along the vector dim
  llvm::Value* mask = nullptr;   // lanes that exist; null: all
  llvm::Value* count = nullptr;  // i64: how many lanes exist, with mask
};

struct Frame {
  llvm::Function* function = nullptr;
  unsigned lanes = 1;
  std::vector<llvm::Value*> base;         // per operand: address of element 0
  std::vector<llvm::Value*> inner_bytes;  // per operand: bytes from one element to the next, null unless strided
  std::vector<llvm::Value*> pick_bytes;   // per operand: bytes from one index to the next, null unless picked
  std::vector<llvm::Value*> extent;       // per operand: number of legal indices, null unless picked
  llvm::Value* nothing = nullptr;         // what elements without a place of their own are read from: 0
  llvm::Value* discarded = nullptr;       // and written to
  llvm::Value* first_index = nullptr;     // linear_index of element 0
  llvm::Value* length = nullptr;          // row_length
  llvm::Value* reduce_index = nullptr;    // column kernels: position along the reduced dim
  std::vector<llvm::Value*> reduced;      // per reduction: scalar (row, scan) or vector (column)
  llvm::Value* error = nullptr;           // i32 slot
  std::vector<llvm::Value*> uniform;      // per node: scalar, when computed
  std::vector<llvm::Value*> spread;       // per node: its lanes, when they are known before elements are met
  bool whole_blocks = false;  // chunks follow each other from a whole block of random words (random_words.h)
};

class Emitter {
 public:
  Emitter(llvm::LLVMContext& context, const KernelSpec& spec, CpuTarget target);

  const KernelSpec& spec;
  const CpuTarget target;
  std::unique_ptr<llvm::Module> module;
  llvm::IRBuilder<> b;

  // --- functions and control flow (emitter.cpp)
  // A function of the kernel object: no unwinding, no library calls. The builder is placed in its entry block.
  llvm::Function* begin_function(const std::string& name, llvm::FunctionType* type, bool exported);
  llvm::Value* slot(llvm::Type* type, const char* name, unsigned count = 1);  // stack slot in the entry block
  llvm::BasicBlock* block(const char* name);
  // for (i = begin; i < end; i += step) body(i), signed; the builder stands behind the loop afterwards.
  void for_loop(const char* name, llvm::Value* begin, llvm::Value* end, llvm::Value* step,
                const std::function<void(llvm::Value*)>& body);
  void if_then(llvm::Value* condition, const std::function<void()>& body);
  llvm::Value* i64(int64_t value) { return b.getInt64(static_cast<uint64_t>(value)); }

  // --- the call (emitter.cpp)
  llvm::Value* call_field(llvm::Value* call, size_t offset, llvm::Type* type);
  llvm::Value* operand_field(llvm::Value* call, size_t operand, size_t offset, llvm::Type* type);
  size_t operand_count() const { return spec.inputs.size() + spec.outputs.size(); }
  const OperandSpec& operand(size_t k) const {
    return k < spec.inputs.size() ? spec.inputs[k] : spec.outputs[k - spec.inputs.size()];
  }
  void load_params(llvm::Value* call);  // into params_, once per function
  void report_error(llvm::Value* call, llvm::Value* error_slot);
  llvm::Value* new_error_slot();

  // --- memory (memory.cpp)
  llvm::Value* load_elements(Frame& frame, size_t operand, const Chunk& chunk);  // widened to the compute dtype
  llvm::Value* load_scalar(Frame& frame, size_t operand, llvm::Value* index);
  void store_elements(Frame& frame, size_t operand, const Chunk& chunk, llvm::Value* value);
  void store_scalar(Frame& frame, size_t operand, llvm::Value* index, llvm::Value* value);

  // --- picked operands (picked.cpp)
  void load_picks(Frame& frame, llvm::Value* call);  // once per function, in its entry block
  // Moves picked operands whose index stays along the row to their place, then `body`, if all those indices are legal.
  void with_row_picks(Frame& frame, const std::function<void()>& body);

  // --- expressions (evaluate.cpp)
  bool is_uniform(int32_t node) const { return uniform_[static_cast<size_t>(node)]; }
  // Computes the uniform nodes that `roots` need, at the builder's place, and keeps them in the frame.
  void prepare_uniform(Frame& frame, llvm::ArrayRef<int32_t> roots);
  // The values of `roots` for each chunk: result[c][r]. Chunks are computed side by side, node by node.
  std::vector<std::vector<llvm::Value*>> evaluate(Frame& frame, llvm::ArrayRef<int32_t> roots,
                                                  llvm::ArrayRef<Chunk> chunks);
  std::vector<bool> reachable(llvm::ArrayRef<int32_t> roots) const;

  // --- loops over a row (elementwise.cpp)
  Chunk partial_chunk(llvm::Value* index, llvm::Value* end, unsigned lanes);
  unsigned vector_lanes(llvm::ArrayRef<int32_t> roots) const;
  struct LoopShape {
    int64_t unroll;    // vectors side by side
    bool masked_only;  // a long body hides the cost of masks: one loop for whole and partial vectors, half the code
  };
  // lanes: of a chunk.
  LoopShape loop_shape(llvm::ArrayRef<int32_t> roots, llvm::ArrayRef<size_t> outputs, unsigned lanes) const;
  // Stores the results of `outputs` (indices into spec.outputs) for elements [0, end).
  void store_row(Frame& frame, llvm::ArrayRef<size_t> outputs, llvm::Value* end);

 private:
  llvm::Value* leaf(Frame& frame, const ExprNode& node, const Chunk& chunk);
  llvm::Value* uniform_leaf(Frame& frame, const ExprNode& node);
  llvm::Value* element_address(Frame& frame, size_t operand, llvm::Value* index);
  struct Places {
    llvm::Value* addresses;  // one per lane
    llvm::Value* legal;      // lanes that exist and whose index is in range; the others' addresses mean nothing
  };
  Places picked_places(Frame& frame, size_t operand, const Chunk& chunk);
  llvm::Value* index_element(Frame& frame, size_t operand, const Chunk& chunk);
  llvm::Value* safe_addresses(const Places& places, llvm::Value* otherwise);
  llvm::Value* load_picked(Frame& frame, size_t operand, const Chunk& chunk);
  void store_picked(Frame& frame, size_t operand, const Chunk& chunk, llvm::Value* stored);
  bool has_gather(llvm::Type* item) const;
  llvm::Function* staging_copy(unsigned item_bytes);
  bool can_mask(llvm::Type* type) const;
  void find_uniform();

  std::vector<bool> uniform_;
  std::vector<llvm::Value*> params_;  // per node of op param: scalar in its dtype
  llvm::Function* staging_[9] = {};
};

// One loop kind each. They emit the exported function `name`.
void emit_pointwise(Emitter& e, const std::string& name);
void emit_row(Emitter& e, const std::string& name);
void emit_column(Emitter& e, const std::string& name);
void emit_scan(Emitter& e, const std::string& name);

}  // namespace tutti::codegen
