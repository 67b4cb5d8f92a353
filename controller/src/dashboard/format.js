// How numbers, times and flows read.

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

/** A count, digits grouped; a dash where it is not known. */
export function count(value) {
  return value == null ? '–' : whole.format(value);
}

/** A large quantity in three digits: 1.23 M. */
export function short(value) {
  if (value == null) return '–';
  for (const [unit, size] of [['G', 1e9], ['M', 1e6], ['k', 1e3]]) {
    if (Math.abs(value) >= size * (unit === 'k' ? 10 : 1)) {
      return `${digits(value / size)} ${unit}`;
    }
  }
  return Number.isInteger(value) || Math.abs(value) >= 100 ? count(value) : digits(value);
}

/** Three significant digits, without trailing zeros. */
export function digits(value) {
  return value == null ? '–' : String(Number(value.toPrecision(3)));
}

/** A share in percent. */
export function percent(share) {
  if (share == null || Number.isNaN(share)) return '–';
  if (share === 0) return '0 %';
  return share < 0.0001 ? '< 0.01 %' : `${digits(share * 100)} %`;
}

/** A ratio to two places, as load factors are given. */
export function ratio(value) {
  return value == null ? '–' : value.toFixed(2);
}

/** Milliseconds to a tenth. */
export function ms(value) {
  return value == null ? '–' : `${value.toFixed(1)} ms`;
}

/** The time of day when an epoch began, to the millisecond, here. */
export function clock(unixNs) {
  const date = new Date(Math.round(unixNs / 1e6));
  const two = (number) => String(number).padStart(2, '0');
  const time = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(':');
  return `${time}.${String(date.getMilliseconds()).padStart(3, '0')}`;
}

export const PROTOCOLS = { 1: 'icmp', 6: 'tcp', 17: 'udp', 58: 'icmp6', 132: 'sctp' };

/** One end of a flow; an IPv6 address stands in brackets before a port. */
export function endText(address, port, proto) {
  if (!PROTOCOLS[proto]) return address;
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
}

/** A flow in words, as the controller's terminal table writes it. */
export function flowText(flow) {
  const { src, dst, sport, dport, proto } = flow;
  const protocol = PROTOCOLS[proto] ?? `proto ${proto}`;
  return `${endText(src, sport, proto)} > ${endText(dst, dport, proto)} ${protocol}`;
}
