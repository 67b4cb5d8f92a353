//! FermatSketch, TowerSketch and the estimators on them: no I/O, no clock, no allocation per packet.
