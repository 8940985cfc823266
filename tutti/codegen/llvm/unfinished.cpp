#include "tutti/codegen/llvm/emitter.h"
#include "tutti/core/error.h"
namespace tutti::codegen {
void emit_row(Emitter&, const std::string&) { throw UsageError("kernel: row loops are not available"); }
void emit_column(Emitter&, const std::string&) { throw UsageError("kernel: column loops are not available"); }
void emit_scan(Emitter&, const std::string&) { throw UsageError("kernel: scan loops are not available"); }
}
