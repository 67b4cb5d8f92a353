//! Estimators over the counters of a flow classifier: cardinality, flow size distribution, entropy
//! (section 4.2 of the ChameleMon paper).
