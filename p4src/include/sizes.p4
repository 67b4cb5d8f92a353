// Sizes of tables that no layout decides.

const int PORTS = 512;
const int PUNTED_TYPES = 16;
const int ROUTES = 2048;
const int ROUTE_MEMBERS = 1024;
