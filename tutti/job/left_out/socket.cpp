#include "tutti/job/store/socket.h"

#include "tutti/job/left_out/left_out.h"

namespace tutti::comm {

std::string to_text(const sockaddr_storage&) { throw_left_out("the socket"); }
std::string host_and_port(const std::string&, int) { throw_left_out("the socket"); }
std::string loopback_of(const std::string&) { throw_left_out("the socket"); }
UniqueFd try_connect(const std::string&, int, const StoreDeadline&, std::string&) { throw_left_out("the socket"); }
UniqueFd listen_on(const std::string&, int) { throw_left_out("the socket"); }
int local_port(int) { throw_left_out("the socket"); }
void tune_connection(int) { throw_left_out("the socket"); }
std::string find_port_owner(int) { throw_left_out("the socket"); }

}  // namespace tutti::comm
