/** Times in words. */

/** The day and minute of a UTC time, where the reader is, never broken into lines; "" if it is none. */
export function day(iso: string): string {
  const time = new Date(iso);
  if (Number.isNaN(time.getTime())) {
    return '';
  }
  const today = new Date().toDateString() === time.toDateString();
  const date: Intl.DateTimeFormatOptions = today ? {} : { day: 'numeric', month: 'short' };
  const other = time.getFullYear() === new Date().getFullYear() ? {} : { year: 'numeric' as const };
  const minute: Intl.DateTimeFormatOptions = { hour: '2-digit', minute: '2-digit' };
  return time.toLocaleString(undefined, { ...date, ...other, ...minute }).replace(/\s/g, '\u00a0');
}
