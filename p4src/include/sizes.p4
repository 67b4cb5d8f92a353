// Sizes of tables that no layout decides.

const int PORTS = 512;
const int PUNTED_TYPES = 16;
const int ROUTES = 1024;   // IPv4
const int ROUTES6 = 512;   // IPv6, by networks of up to 64 bits
const int ROUTE_MEMBERS = 1024;
