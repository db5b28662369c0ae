import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/** Submits a query: java flink_submit.java PORT NAME CHAINING STATEMENT... (Flink's own SQL client is not in the wheel.) */
class Submit {
    public static void main(String[] arguments) throws Exception {
        Configuration target = new Configuration();
        target.setString("execution.target", "remote");
        target.setString("rest.address", "127.0.0.1");
        target.setString("rest.port", arguments[0]);
        target.setString("pipeline.name", arguments[1]);
        target.setString("pipeline.operator-chaining.enabled", arguments[2]);
        // Else steps of two queries are both called Calc[2], and so are their threads.
        target.setString("table.exec.simplify-operator-name-enabled", "false");
        target.setString("parallelism.default", "1");
        EnvironmentSettings settings = EnvironmentSettings.newInstance().withConfiguration(target).build();
        TableEnvironment tables = TableEnvironment.create(settings);
        for (int n = 3; n < arguments.length; n++) {
            tables.executeSql(arguments[n]);
        }
    }
}
