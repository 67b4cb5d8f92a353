//! The thread beside the lcores: keeps the connection to the controller, begins and ends
//! measurement, hands attention to the lcores and finished groups to the controller.

pub mod collect;
