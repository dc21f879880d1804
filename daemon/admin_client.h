// admin_client: one request to a running daemon's admin socket, for the command line. Blocking, on a socket of its own; the daemon
// itself never calls this. It speaks just the HTTP/1.1 that the admin server answers with.
#pragma once

#include <chrono>
#include <expected>
#include <string>

#include "engines/address.h"

namespace weir {

struct AdminResponse {
  int status = 0;
  std::string body;
};

struct AdminEndpoint {
  Address address;
  std::string name;     // as the user wrote it
  std::string token;    // sent as a bearer token; empty: none
};

// Unexpected: why the daemon cannot be reached, in words. It takes `patience` at most, a daemon that is stopped or that sends its
// answer byte by byte included.
std::expected<AdminResponse, std::string> ask_admin(const AdminEndpoint& to, const std::string& method, const std::string& path,
                                                    const std::string& body, std::chrono::milliseconds patience);
bool admin_reachable(const AdminEndpoint& to, std::chrono::milliseconds patience);   // someone listens there, or may

}  // namespace weir
