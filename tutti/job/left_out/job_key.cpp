#include "tutti/job/left_out/left_out.h"
#include "tutti/job/store/job_key.h"

namespace tutti::comm {

std::string make_job_key() { throw_left_out("the job key"); }

// Nothing that would ask for it can be made; what is made of the options says so.
std::string read_job_key() { return ""; }

void check_job_key(std::string_view) { throw_left_out("the job key"); }
Nonce make_nonce() { throw_left_out("the job key"); }
Proof make_proof(std::string_view, Side, const Nonce&, const Nonce&) { throw_left_out("the job key"); }
bool is_same_proof(const Proof&, const Proof&) { throw_left_out("the job key"); }

}  // namespace tutti::comm
