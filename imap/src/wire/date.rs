//! IMAP's dates: `date` of SEARCH, `date-time` of APPEND and INTERNALDATE (RFC 3501 §9). What is kept is a point in
//! time; answers are always in UTC.

use jiff::civil::Date;

const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
const DAY_MS: i64 = 86_400_000;
/// 9999-12-31T23:59:59Z; the grammar has four digits for a year.
const LAST_MS: i64 = 253_402_300_799_000;
/// 0000-01-01T00:00:00Z.
const FIRST_MS: i64 = -62_167_219_200_000;

/// `1-Feb-1994`, `01-feb-1994`.
pub fn parse_date(text: &[u8]) -> Option<Date> {
    let mut parts = text.split(|&octet| octet == b'-');
    let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || year.len() != 4 || !(1..=2).contains(&day.len()) {
        return None;
    }
    let month = MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month))?;
    Date::new(number(year)? as i16, month as i8 + 1, number(day)? as i8).ok()
}

/// ` 1-Dec-2026 10:11:12 +0000` to milliseconds since 1970. The day may be one digit without the space.
pub fn parse_date_time(text: &[u8]) -> Option<i64> {
    let mut words = text.strip_prefix(b" ").unwrap_or(text).split(|&octet| octet == b' ');
    let (date, time, zone) = (words.next()?, words.next()?, words.next()?);
    if words.next().is_some() {
        return None;
    }
    let date = parse_date(date)?;
    let [h1, h2, b':', m1, m2, b':', s1, s2] = *time else { return None };
    let (hour, minute, second) = (number(&[h1, h2])?, number(&[m1, m2])?, number(&[s1, s2])?);
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let [sign, zh1, zh2, zm1, zm2] = *zone else { return None };
    let (zone_hour, zone_minute) = (number(&[zh1, zh2])?, number(&[zm1, zm2])?);
    if zone_minute > 59 {
        return None;
    }
    let offset = match sign {
        b'+' => zone_hour * 60 + zone_minute,
        b'-' => -(zone_hour * 60 + zone_minute),
        _ => return None,
    };
    let days = days_from_civil(i64::from(date.year()), i64::from(date.month()), i64::from(date.day()));
    Some(days * DAY_MS + ((hour * 60 + minute - offset) * 60 + second) * 1000)
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |value, octet| octet.is_ascii_digit().then(|| value * 10 + i64::from(octet - b'0')))
}

/// Appends ` 1-Dec-2026 10:11:12 +0000`, 26 octets, without quotes.
pub fn write_date_time(out: &mut Vec<u8>, ms: i64) {
    let seconds = ms.clamp(FIRST_MS, LAST_MS).div_euclid(1000);
    let (year, month, day) = civil_from_days(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    let digit = |value: i64| b'0' + (value % 10) as u8;
    let mut text = *b" 0-Jan-0000 00:00:00 +0000";
    if day > 9 {
        text[0] = digit(day / 10);
    }
    text[1] = digit(day);
    text[3..6].copy_from_slice(MONTHS[(month - 1) as usize]);
    text[7] = digit(year / 1000);
    text[8] = digit(year / 100);
    text[9] = digit(year / 10);
    text[10] = digit(year);
    for (at, value) in [(12, of_day / 3600), (15, of_day / 60 % 60), (18, of_day % 60)] {
        text[at] = digit(value / 10);
        text[at + 1] = digit(value);
    }
    out.extend_from_slice(&text);
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar, by counting from a March 1st in 400-year eras.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = (shifted + 2) % 12 + 1;
    (year + era * 400 + i64::from(month <= 2), month, of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(ms: i64) -> String {
        let mut out = Vec::new();
        write_date_time(&mut out, ms);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn known_date_times() {
        for (ms, text) in [
            (0, " 1-Jan-1970 00:00:00 +0000"),
            (1_796_119_872_000, " 1-Dec-2026 10:11:12 +0000"),
            (951_827_696_999, "29-Feb-2000 12:34:56 +0000"),
            (-1000, "31-Dec-1969 23:59:59 +0000"),
            (i64::MAX, "31-Dec-9999 23:59:59 +0000"),
            (i64::MIN, " 1-Jan-0000 00:00:00 +0000"),
        ] {
            assert_eq!(written(ms), text);
        }
        assert_eq!(parse_date_time(b"17-Jul-1996 02:44:25 -0700"), Some(837_596_665_000));
        assert_eq!(parse_date_time(b"7-jul-1996 02:44:25 +1400"), Some(836_657_065_000));
    }

    #[test]
    fn invalid() {
        for text in [
            "",
            "1-Jan-1970",
            "32-Jan-1970 00:00:00 +0000",
            "29-Feb-2001 00:00:00 +0000",
            "00-Jan-1970 00:00:00 +0000",
            "01-Foo-1970 00:00:00 +0000",
            "01-Jan-70 00:00:00 +0000",
            "01-Jan-1970 24:00:00 +0000",
            "01-Jan-1970 00:60:00 +0000",
            "01-Jan-1970 00:00:61 +0000",
            "01-Jan-1970 00:00:00 0000",
            "01-Jan-1970 00:00:00 +00000",
            "01-Jan-1970 00:00:00 +0060",
            "01-Jan-1970 0:00:00 +0000",
            "01-Jan-1970 00:00:00  +0000",
            "01-Jan-1970 00:00:00 +0000 x",
        ] {
            assert_eq!(parse_date_time(text.as_bytes()), None, "{text}");
        }
        for text in ["", "-", "--", "1-Jan", "1-Jan-1970-1", "+1-Jan-1970", "1-Jan-19700", "0-Jan-1970"] {
            assert_eq!(parse_date(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(seconds in FIRST_MS / 1000..=LAST_MS / 1000) {
            prop_assert_eq!(parse_date_time(written(seconds * 1000).as_bytes()), Some(seconds * 1000));
        }

        #[test]
        fn days_agree_with_jiff(days in -700_000i64..2_900_000) {
            let (year, month, day) = civil_from_days(days);
            let date = Date::new(year as i16, month as i8, day as i8).unwrap();
            let epoch = Date::new(1970, 1, 1).unwrap();
            prop_assert_eq!(i64::from((date - epoch).get_days()), days);
            prop_assert_eq!(days_from_civil(year, month, day), days);
        }
    }
}
