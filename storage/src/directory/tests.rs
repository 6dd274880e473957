//! The directory on the memory store.

use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::wide::memory::{Fault, Faults, Memory, Operation};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

fn run<T>(test: impl AsyncFnOnce(Directory, Memory) -> T) -> T {
    let store = Memory::new();
    let directory = Directory::new(Arc::new(store.clone()), DirectoryConfig::cheap());
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test(directory, store))
}

async fn example(directory: &Directory) -> (AccountId, AccountId) {
    directory.domain_add("example.test").await.unwrap();
    let alice = directory.account_add("Alice@Example.Test", Some("secret"), 7).await.unwrap();
    let bob = directory.account_add("bob@example.test", Some("hunter2"), 0).await.unwrap();
    (alice, bob)
}

async fn who(directory: &Directory, address: &str) -> Resolved {
    let (local, domain) = address.rsplit_once('@').unwrap();
    directory.resolve(local, domain).await.unwrap()
}

fn to(accounts: &[AccountId]) -> Resolved {
    Resolved::Accounts(accounts.to_vec())
}

#[test]
fn names_are_found_however_they_are_written() {
    run(async |directory, _| {
        let (alice, bob) = example(&directory).await;
        for address in [
            "alice@example.test",
            "ALICE@EXAMPLE.TEST",
            "\"alice\"@example.test.",
            "alice+tag@example.test",
            "aLice+a+b@Example.test",
            "\"al\\ice\"@example.test",
        ] {
            assert_eq!(who(&directory, address).await, to(&[alice]), "{address}");
        }
        assert_eq!(who(&directory, "bob@example.test").await, to(&[bob]));
        for address in [
            "carol@example.test",
            "+@example.test",
            "+alice@example.test",
            "al.ice@example.test",
            "a b@example.test",
            "@example.test",
        ] {
            assert_eq!(who(&directory, address).await, Resolved::UnknownUser, "{address}");
        }
        for address in ["alice@example.org", "alice@sub.example.test", "alice@[192.0.2.1]", "alice@", "alice@test"] {
            assert_eq!(who(&directory, address).await, Resolved::ForeignDomain, "{address}");
        }
        assert!(directory.is_local("EXAMPLE.test").await.unwrap());
        assert!(!directory.is_local("example.org").await.unwrap());
        assert!(!directory.is_local("[192.0.2.1]").await.unwrap());
        let shown: Vec<String> = directory.account_list(None).await.unwrap().into_iter().map(|a| a.address).collect();
        assert_eq!(shown, ["Alice@example.test", "bob@example.test"]);
    });
}

#[test]
fn an_exact_name_goes_before_its_tag() {
    run(async |directory, _| {
        let (alice, bob) = example(&directory).await;
        directory.alias_add("alice+list@example.test", &["bob@example.test"]).await.unwrap();
        assert_eq!(who(&directory, "alice+list@example.test").await, to(&[bob]));
        assert_eq!(who(&directory, "alice+other@example.test").await, to(&[alice]));
    });
}

#[test]
fn unicode_domains_and_names() {
    run(async |directory, _| {
        directory.domain_add("Bücher.example").await.unwrap();
        let id = directory.account_add("Jörg@xn--bcher-kva.example", None, 0).await.unwrap();
        assert_eq!(who(&directory, "JÖRG@BÜCHER.EXAMPLE").await, to(&[id]));
        assert_eq!(directory.domain_list().await.unwrap()[0].name, "xn--bcher-kva.example");
    });
}

#[test]
fn aliases_expand_once_and_may_point_at_aliases() {
    run(async |directory, _| {
        let (alice, bob) = example(&directory).await;
        directory.domain_add("other.test").await.unwrap();
        directory.alias_add("team@example.test", &["bob@example.test", "alice@example.test"]).await.unwrap();
        directory
            .alias_add("all@other.test", &["team@example.test", "alice+x@example.test", "TEAM@example.test"])
            .await
            .unwrap();
        assert_eq!(who(&directory, "team@example.test").await, to(&[bob, alice]));
        assert_eq!(who(&directory, "all+tag@other.test").await, to(&[bob, alice]));
        // Replaced.
        directory.alias_add("Team@example.test", &["alice@example.test"]).await.unwrap();
        assert_eq!(who(&directory, "all@other.test").await, to(&[alice]));
        let aliases = directory.alias_list(Some("example.test")).await.unwrap();
        assert_eq!(
            aliases,
            [AliasInfo { address: "Team@example.test".into(), targets: vec!["alice@example.test".into()] }]
        );
        directory.alias_remove("team@example.test").await.unwrap();
        assert_eq!(who(&directory, "team@example.test").await, Resolved::UnknownUser);
        assert_eq!(who(&directory, "all@other.test").await, to(&[alice]), "what is left of it");
    });
}

#[test]
fn loops_and_crowds_are_refused() {
    run(async |directory, store| {
        let (alice, _) = example(&directory).await;
        let self_loop = directory.alias_add("loop@example.test", &["loop@example.test"]).await;
        assert!(matches!(self_loop, Err(DirectoryError::Loop(_))), "{self_loop:?}");
        directory.alias_add("a@example.test", &["alice@example.test"]).await.unwrap();
        directory.alias_add("b@example.test", &["a@example.test"]).await.unwrap();
        let back = directory.alias_add("a@example.test", &["alice@example.test", "b+tag@example.test"]).await;
        assert!(matches!(back, Err(DirectoryError::Loop(_))), "{back:?}");
        assert_eq!(who(&directory, "b@example.test").await, to(&[alice]), "nothing was changed");

        // A loop that got into the store all the same is an error, not an endless one.
        let row = row::Named::Alias(row::AliasRow::new("a".into(), vec!["b@example.test".into()]));
        let mut batch = crate::wide::Batch::default();
        let bytes = row::Row::encode(&row).unwrap();
        batch.put(crate::wide::Table::Directory, row::domain_partition("example.test"), row::name_key("a"), bytes);
        crate::wide::Store::put(&store, batch).await.unwrap();
        let other = Directory::new(Arc::new(store), DirectoryConfig::cheap());
        assert!(matches!(other.resolve("a", "example.test").await, Err(DirectoryError::Loop(_))));

        let many = vec!["alice@example.test"; 600];
        directory.alias_add("m@example.test", &many).await.unwrap();
        directory.alias_add("n@example.test", &many).await.unwrap();
        assert_eq!(who(&directory, "m@example.test").await, to(&[alice]));
        for targets in [&["m@example.test", "n@example.test"][..], &["alice@example.test"; 1_001]] {
            let crowd = directory.alias_add("crowd@example.test", targets).await;
            assert!(matches!(crowd, Err(DirectoryError::TooManyTargets { .. })), "{crowd:?}");
        }
    });
}

#[test]
fn the_contact_and_the_catch_all_receive_what_nobody_else_does() {
    run(async |directory, _| {
        let (alice, bob) = example(&directory).await;
        assert_eq!(who(&directory, "Postmaster@example.test").await, to(&[alice]), "the first account by default");
        assert_eq!(who(&directory, "abuse@example.test").await, to(&[alice]));
        directory.domain_set_contact("example.test", Some("bob@example.test")).await.unwrap();
        assert_eq!(who(&directory, "postmaster@example.test").await, to(&[bob]));
        directory.alias_add("abuse@example.test", &["alice@example.test"]).await.unwrap();
        assert_eq!(who(&directory, "abuse@example.test").await, to(&[alice]), "its own alias goes first");
        directory.domain_set_catch_all("example.test", Some("alice@example.test")).await.unwrap();
        assert_eq!(who(&directory, "whoever@example.test").await, to(&[alice]));
        assert_eq!(who(&directory, "bob@example.test").await, to(&[bob]));
        assert_eq!(who(&directory, "postmaster@example.test").await, to(&[bob]));
        let info = directory.domain_list().await.unwrap().remove(0);
        assert_eq!(info.catch_all.as_deref(), Some("alice@example.test"));
        // What pointed at a removed account points nowhere.
        directory.account_remove("alice@example.test").await.unwrap();
        assert_eq!(who(&directory, "whoever@example.test").await, Resolved::UnknownUser);
        directory.domain_set_contact("example.test", None).await.unwrap();
        assert_eq!(who(&directory, "postmaster@example.test").await, Resolved::UnknownUser);
    });
}

#[test]
fn disabled_accounts_neither_receive_nor_log_in() {
    run(async |directory, _| {
        let (alice, bob) = example(&directory).await;
        directory.alias_add("team@example.test", &["alice@example.test", "bob@example.test"]).await.unwrap();
        directory.domain_set_catch_all("example.test", Some("bob@example.test")).await.unwrap();
        assert!(directory.authenticate("alice@example.test", "secret", PEER).await.is_ok());
        directory.account_set_enabled("ALICE@example.test", false).await.unwrap();
        assert_eq!(who(&directory, "alice@example.test").await, Resolved::UnknownUser, "not to the catch-all");
        assert_eq!(who(&directory, "team@example.test").await, to(&[bob]));
        let refused = directory.authenticate("alice@example.test", "secret", PEER).await;
        assert!(matches!(refused, Err(AuthError::Invalid)), "{refused:?}");
        directory.account_set_enabled("alice@example.test", true).await.unwrap();
        assert_eq!(who(&directory, "alice@example.test").await, to(&[alice]));
        assert!(directory.authenticate("alice@example.test", "secret", PEER).await.is_ok());
    });
}

#[test]
fn an_account_made_again_is_another_one() {
    run(async |directory, store| {
        let (alice, _) = example(&directory).await;
        assert_eq!(directory.account_remove("alice@example.test").await.unwrap(), alice);
        assert_eq!(who(&directory, "alice@example.test").await, Resolved::UnknownUser);
        assert!(matches!(directory.authenticate("alice@example.test", "secret", PEER).await, Err(AuthError::Invalid)));
        let again = directory.account_add("alice@example.test", Some("other"), 0).await.unwrap();
        assert_ne!(again, alice);
        let reserved = row::id_partition(alice);
        assert_eq!(crate::wide::Store::version(&store, crate::wide::Table::Directory, &reserved).await.unwrap(), 1);
        assert!(matches!(directory.account_remove("carol@example.test").await, Err(DirectoryError::NoAccount(_))));
    });
}

#[test]
fn changes_are_seen_at_once_in_spite_of_what_is_remembered() {
    run(async |directory, store| {
        assert!(!directory.is_local("example.test").await.unwrap());
        let (alice, _) = example(&directory).await;
        assert!(directory.is_local("example.test").await.unwrap());
        assert_eq!(who(&directory, "carol@example.test").await, Resolved::UnknownUser);
        directory.alias_add("carol@example.test", &["alice@example.test"]).await.unwrap();
        assert_eq!(who(&directory, "carol@example.test").await, to(&[alice]));
        let reads = store.counts();
        for _ in 0..10 {
            assert_eq!(who(&directory, "carol@example.test").await, to(&[alice]));
            assert!(directory.is_local("example.test").await.unwrap());
        }
        assert_eq!(store.counts(), reads, "remembered");
    });
}

#[test]
fn passwords() {
    run(async |directory, store| {
        let (alice, _) = example(&directory).await;
        let login = directory.authenticate("ALICE@example.test", "secret", PEER).await.unwrap();
        assert_eq!((login.account, login.address.as_str()), (alice, "Alice@example.test"));
        for (name, password) in [
            ("alice@example.test", "Secret"),
            ("alice@example.test", ""),
            ("alice+tag@example.test", "secret"),
            ("alice", "secret"),
            ("bob@example.test", "secret"),
            ("carol@example.test", "secret"),
            ("alice@example.org", "secret"),
            ("", ""),
        ] {
            let peer = IpAddr::V4(Ipv4Addr::from(name.len() as u32 * 7 + password.len() as u32));
            let refused = directory.authenticate(name, password, peer).await;
            assert!(matches!(refused, Err(AuthError::Invalid)), "{name:?} {password:?}: {refused:?}");
        }
        let long = "x".repeat(5_000);
        assert!(matches!(directory.authenticate(&long, "secret", PEER).await, Err(AuthError::Invalid)));
        assert!(matches!(directory.authenticate("alice@example.test", &long, PEER).await, Err(AuthError::Invalid)));
        directory.account_set_password("alice@example.test", Some("changed")).await.unwrap();
        assert!(matches!(directory.authenticate("alice@example.test", "secret", PEER).await, Err(AuthError::Invalid)));
        assert!(directory.authenticate("alice@example.test", "changed", PEER).await.is_ok());
        directory.account_set_password("alice@example.test", None).await.unwrap();
        assert!(matches!(directory.authenticate("alice@example.test", "changed", PEER).await, Err(AuthError::Invalid)));
        assert!(!directory.account("alice@example.test").await.unwrap().unwrap().has_password);
        // Stored as argon2id, never as it is.
        for (.., value) in store.rows() {
            let text = String::from_utf8_lossy(&value);
            assert!(!text.contains("hunter2"));
            assert!(!text.contains("password") || text.contains("$argon2id$v=19$"));
        }
    });
}

#[test]
fn a_checked_password_costs_one_read_and_no_hash() {
    run(async |directory, store| {
        example(&directory).await;
        directory.authenticate("alice@example.test", "secret", PEER).await.unwrap();
        // With no core to hash on, only what is remembered gets through.
        let cores = directory.inner.logins_cores();
        let all = cores.acquire_many(cores.available_permits() as u32).await.unwrap();
        let before = store.counts().gets;
        for _ in 0..100 {
            directory.authenticate("alice@example.test", "secret", PEER).await.unwrap();
        }
        assert_eq!(store.counts().gets - before, 100);
        drop(all);
    });
}

#[test]
fn a_login_lasts_until_its_account_changes() {
    run(async |directory, store| {
        let (alice, _) = example(&directory).await;
        let log_in = async |password: &str| directory.authenticate("alice@example.test", password, PEER).await.unwrap();
        let login = log_in("secret").await;
        assert!(directory.still_valid(&login).await.unwrap());
        let before = store.counts();
        for _ in 0..100 {
            assert!(directory.still_valid(&login).await.unwrap());
        }
        assert_eq!(store.counts(), before, "remembered");
        // What has nothing to do with it does not end it.
        directory.account_set_quota("alice@example.test", 9).await.unwrap();
        directory.account_set_password("bob@example.test", Some("other")).await.unwrap();
        assert!(directory.still_valid(&login).await.unwrap());

        directory.account_set_enabled("alice@example.test", false).await.unwrap();
        assert!(!directory.still_valid(&login).await.unwrap());
        directory.account_set_enabled("alice@example.test", true).await.unwrap();
        assert!(directory.still_valid(&login).await.unwrap());

        directory.account_set_password("alice@example.test", Some("secret")).await.unwrap();
        assert!(!directory.still_valid(&login).await.unwrap(), "set anew, though to the same");
        let login = log_in("secret").await;
        assert!(directory.still_valid(&login).await.unwrap());
        directory.account_set_password("alice@example.test", None).await.unwrap();
        assert!(!directory.still_valid(&login).await.unwrap());
        directory.account_set_password("alice@example.test", Some("secret")).await.unwrap();

        let login = log_in("secret").await;
        directory.account_remove("alice@example.test").await.unwrap();
        assert!(!directory.still_valid(&login).await.unwrap());
        let again = directory.account_add("Alice@example.test", Some("secret"), 0).await.unwrap();
        assert_ne!(again, alice);
        assert!(!directory.still_valid(&login).await.unwrap(), "another account of the same name");

        directory.inner.forget_answers();
        store.inject(Operation::Read, Fault::Unavailable);
        assert!(directory.still_valid(&login).await.is_err(), "not known");
    });
}

#[test]
fn guessing_is_slowed_down_but_nobody_is_locked_out() {
    run(async |directory, _| {
        example(&directory).await;
        let guesser = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));
        let mut throttled = 0;
        for guess in 0..20 {
            match directory.authenticate("alice@example.test", &format!("guess{guess}"), guesser).await {
                Err(AuthError::Invalid) => assert_eq!(throttled, 0),
                Err(AuthError::Throttled { retry_after }) => {
                    assert!(!retry_after.is_zero());
                    throttled += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(throttled, 15);
        assert!(directory.authenticate("alice@example.test", "secret", PEER).await.is_ok(), "from elsewhere");
        assert!(directory.authenticate("bob@example.test", "hunter2", guesser).await.is_ok(), "another account");
    });
}

#[test]
fn mistakes_are_named() {
    run(async |directory, _| {
        let (..) = example(&directory).await;
        let long_label = format!("a@{}.test", "x".repeat(64));
        let long_local = format!("{}@example.test", "x".repeat(65));
        let cases = [
            ("", "it has no @"),
            ("alice", "it has no @"),
            ("@example.test", "nothing stands before the @"),
            ("alice@", "there is no domain"),
            ("alice@.", "there is no domain"),
            ("alice@example..test", "a label of the domain is empty"),
            ("alice@-example.test", "a label of the domain begins or ends with a hyphen"),
            ("alice@exa_mple.test", "the domain holds a character that no host name has"),
            ("alice@exam ple.test", "the domain holds a character that no host name has"),
            ("alice@192.0.2.1", "an IP address is not a domain"),
            ("alice@ex\u{2603}.test", "a label of the domain holds a character that no host name has"),
            (long_label.as_str(), "a label of the domain is longer than 63 octets"),
            (long_local.as_str(), "more than 64 octets stand before the @"),
            (".alice@example.test", "a dot must stand between other characters"),
            ("al..ice@example.test", "a dot must stand between other characters"),
            ("al ice@example.test", "spaces and control characters are not allowed"),
            ("al\0ice@example.test", "spaces and control characters are not allowed"),
            ("al<ice@example.test", "one of ()<>[]:;@\\,\" stands before the @"),
            ("a@b@example.test", "one of ()<>[]:;@\\,\" stands before the @"),
            ("\"alice@example.test", "a quote is not closed"),
            ("\"a\"b\"@example.test", "a quote ends in the middle"),
            ("\"\"@example.test", "nothing stands before the @"),
        ];
        for (address, expected) in cases {
            match directory.account_add(address, None, 0).await {
                Err(DirectoryError::BadAddress { why, .. }) => assert_eq!(why, expected, "{address:?}"),
                other => panic!("{address:?}: {other:?}"),
            }
        }
        use DirectoryError as E;
        let exists = directory.account_add("ALICE@example.test", None, 0).await;
        assert!(matches!(exists, Err(E::Exists(_))), "{exists:?}");
        assert!(matches!(directory.account_add("x@example.org", None, 0).await, Err(E::NoDomain(_))));
        for password in ["", "a\0b", "a\n", &"x".repeat(1_025)] {
            let refused = directory.account_add("x@example.test", Some(password), 0).await;
            assert!(matches!(refused, Err(E::BadPassword(_))), "{password:?}");
        }
        assert!(directory.account("x@example.test").await.unwrap().is_none());
        assert!(matches!(directory.domain_add("EXAMPLE.test.").await, Err(E::DomainExists(_))));
        assert!(matches!(directory.domain_add("exa mple").await, Err(E::BadDomain { .. })));
        assert!(matches!(directory.domain_remove("example.test").await, Err(E::DomainNotEmpty(_))));
        assert!(matches!(directory.domain_remove("example.org").await, Err(E::NoDomain(_))));
        assert!(matches!(directory.account_list(Some("example.org")).await, Err(E::NoDomain(_))));
        assert!(matches!(directory.alias_add("x@example.test", &[]).await, Err(E::NoTarget)));
        assert!(matches!(directory.alias_add("alice@example.test", &["bob@example.test"]).await, Err(E::Exists(_))));
        let foreign = directory.alias_add("x@example.test", &["bob@example.test", "x@example.org"]).await;
        assert!(matches!(foreign, Err(E::ForeignTarget(_))), "{foreign:?}");
        let unknown = directory.alias_add("x@example.test", &["carol@example.test"]).await;
        assert!(matches!(unknown, Err(E::UnknownTarget(_))), "{unknown:?}");
        let unknown = directory.domain_set_catch_all("example.test", Some("carol@example.test")).await;
        assert!(matches!(unknown, Err(E::UnknownTarget(_))), "{unknown:?}");
        assert!(matches!(directory.alias_remove("alice@example.test").await, Err(E::NoAlias(_))));
        assert!(matches!(directory.account_set_enabled("x@example.test", true).await, Err(E::NoAccount(_))));
    });
}

#[test]
fn an_emptied_domain_goes_and_may_come_back() {
    run(async |directory, _| {
        example(&directory).await;
        directory.account_remove("alice@example.test").await.unwrap();
        directory.account_remove("bob@example.test").await.unwrap();
        directory.domain_remove("example.test").await.unwrap();
        assert_eq!(directory.domain_list().await.unwrap(), []);
        assert!(!directory.is_local("example.test").await.unwrap());
        example(&directory).await;
        assert_eq!(directory.domain_list().await.unwrap().len(), 1);
    });
}

#[test]
fn long_lists_come_in_pages() {
    run(async |directory, _| {
        example(&directory).await;
        for number in 0..1_100 {
            directory.alias_add(&format!("a{number:04}@example.test"), &["bob@example.test"]).await.unwrap();
        }
        let aliases = directory.alias_list(None).await.unwrap();
        assert_eq!(aliases.len(), 1_100);
        assert!(aliases.iter().map(|alias| &alias.address).is_sorted());
        assert_eq!(directory.account_list(Some("example.test")).await.unwrap().len(), 2);
    });
}

#[test]
fn a_name_is_given_once_whatever_the_store_answers() {
    for seed in 0..100 {
        let faults = Faults {
            seed,
            conflict: 50,
            unknown_applied: 80,
            unknown_lost: 80,
            unknown_late: 80,
            late_operations_max: 6,
            delay: 500,
            yields_max: 3,
            stale: 200,
            stale_operations_max: 10,
            ..Faults::default()
        };
        let store = Memory::with_faults(faults);
        let nodes: Vec<Directory> = (0..3)
            .map(|node| Directory::new(Arc::new(store.node(seed * 10 + node)), DirectoryConfig::cheap()))
            .collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let made = runtime.block_on(async {
            let domains = nodes.iter().map(|node| node.domain_add("example.test"));
            let added = futures_util::future::join_all(domains).await;
            // Several may say so: who was not told whether it was the one takes the domain that is there for it.
            assert!(added.iter().any(Result::is_ok), "seed {seed}: {added:?}");
            let accounts = nodes.iter().map(async |node| {
                // A node that reads the past may not know the domain yet.
                loop {
                    match node.account_add("alice@example.test", None, 0).await {
                        Err(DirectoryError::NoDomain(_)) => {}
                        other => return other,
                    }
                }
            });
            futures_util::future::join_all(accounts).await
        });
        store.settle();
        let made: Vec<AccountId> = made.into_iter().flatten().collect();
        assert_eq!(made.len(), 1, "seed {seed}");
        store.set_faults(Faults::default());
        let calm = Directory::new(Arc::new(store), DirectoryConfig::cheap());
        assert_eq!(runtime.block_on(who(&calm, "alice@example.test")), to(&made), "seed {seed}");
    }
}

#[test]
fn a_change_that_was_made_after_all_is_no_error() {
    run(async |directory, store| {
        store.inject(Operation::Commit, Fault::UnknownApplied);
        directory.domain_add("example.test").await.unwrap();
        store.inject(Operation::Commit, Fault::UnknownLate(2));
        directory.account_add("alice@example.test", None, 0).await.unwrap();
        store.inject(Operation::Commit, Fault::Unavailable);
        let failed = directory.account_remove("alice@example.test").await;
        assert!(matches!(failed, Err(DirectoryError::Store(_))), "{failed:?}");
        directory.account_remove("alice@example.test").await.unwrap();
    });
}
